#include "tessera/sim/simulate.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/cost/prices.h"
#include "tessera/mesh/group.h"

namespace tessera::sim {
namespace {

using bind::Phase;
using bind::QueueKind;

constexpr double kNever = std::numeric_limits<double>::infinity();

// An event, by class and index.
struct Cause {
  int of_class = -1, event = -1;
};

// The classes that a message leaves and enters; -1: it is a collective, whose bytes leave and enter all members.
struct Way {
  int from = -1, to = -1;
};

// A way out of a class, or into it, that a transfer takes.
struct End {
  int of_class = -1;
  bool enters = false;
  auto operator<=>(const End&) const = default;
};

// A transfer in which classes take part: of a collective, or of a message from one class to another.
struct Meeting {
  Transfer transfer;
  std::set<int> missing;     // classes that must start before it moves
  std::vector<int> members;  // classes
  std::vector<End> ends;
  Cause last;  // the last start
  double began = kNever, ended = kNever;
  double left = 0;              // seconds, without contention
  int previous = -1;            // the meeting before it of the same group, or of the same sender and receiver
  std::map<int, double> chain;  // by class: the longest chain to its start
};

// A class's part in a communication between start and wait.
struct UnderWay {
  std::vector<int> meetings;  // that its wait needs
  double began = kNever;      // when its own transfer began, if ranks transfer only while they wait
  double left = 0;
  bool measured = false;
};

struct QueueState {
  std::vector<int> actions;
  size_t next = 0;
  bool running = false;
  bool posted = false;  // the current start has arrived at its meetings
  double begin = 0;     // of the current action
  double left = 0;      // seconds of the current kernel
  Cause before;         // the action that ended last in this queue
};

struct ClassState {
  const ClassProgram* program = nullptr;
  QueueState queues[2];
  std::vector<int> event_of;             // by action: its event; -1: not ended
  std::map<int, UnderWay> under_way;     // by step
  std::map<std::string, int64_t> met;    // by group: meetings so far
  std::vector<double> chain;             // by step: the longest chain that ends with it
  std::map<int, double> chain_to_start;  // by step under way
  double before = 0, after = 0;          // seconds left for copies of inputs and outputs
  int transfers = 0;                     // under way
};

bool moves_at_wait(const Setting& setting) {
  return setting.machine.progress == MachineModel::Progress::at_wait && !cost::moves_in_background(setting.engine);
}

class Simulation {
 public:
  Simulation(const std::vector<ClassProgram>& programs, const Setting& setting)
      : setting_(setting), at_wait_(moves_at_wait(setting)), overlap_(setting.machine.overlap_on(setting.engine)) {
    timeline_.classes.resize(programs.size());
    for (const ClassProgram& program : programs) classes_.push_back(state_of(program));
    hosts_ = setting.machine_ranks > 0
                 ? static_cast<double>(setting.mesh.size()) / static_cast<double>(setting.machine_ranks)
                 : 1;
  }

  Timeline run() {
    while (true) {
      while (advance_all()) {
      }
      const double step = time_to_next();
      if (step == kNever) break;
      pass(step);
    }
    for (size_t c = 0; c < classes_.size(); ++c)
      for (const QueueState& queue : classes_[c].queues)
        check(queue.next == queue.actions.size(), "the simulation of a program without deadlock ends");
    finish();
    return std::move(timeline_);
  }

 private:
  static ClassState state_of(const ClassProgram& program) {
    ClassState state;
    state.program = &program;
    state.before = program.before;
    state.after = program.after;
    const auto& actions = *program.machine->actions;
    for (int action : running_order(*program.machine))
      state.queues[static_cast<size_t>(actions[static_cast<size_t>(action)].queue)].actions.push_back(action);
    state.event_of.assign(actions.size(), -1);
    state.chain.assign(program.machine->steps.size(), 0);
    return state;
  }

  const bind::Enqueued& enqueued(const ClassState& state, int action) const {
    return (*state.program->machine->actions)[static_cast<size_t>(action)];
  }
  const bind::Step& step(const ClassState& state, int step) const {
    return *state.program->machine->steps[static_cast<size_t>(step)];
  }

  bool advance_all() {
    bool any = false;
    for (size_t c = 0; c < classes_.size(); ++c)
      for (QueueState& queue : classes_[c].queues)
        while (advance(static_cast<int>(c), queue)) any = true;
    return any;
  }

  // Begins the queue's next action if it can, and ends it if it takes no time. False: the action has not ended.
  bool advance(int c, QueueState& queue) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    if (queue.next == queue.actions.size() || state.before > 0) return false;
    const int action = queue.actions[queue.next];
    const bind::Enqueued& it = enqueued(state, action);
    if (!queue.running) {
      if (it.after >= 0 && state.event_of[static_cast<size_t>(it.after)] < 0) return false;
      queue.running = true;
      queue.begin = now_;
      if (it.action.phase == Phase::run) queue.left = state.program->seconds[static_cast<size_t>(it.action.task)];
    }
    switch (it.action.phase) {
      case Phase::run:
        if (queue.left > 0) return false;
        end(c, queue, action, cause_of_begin(state, queue, it), queue.begin);
        break;
      case Phase::start:
        return try_start(c, queue, action, it);
      case Phase::wait:
        return try_wait(c, queue, action, it);
    }
    return true;
  }

  Cause cause_of_begin(const ClassState& state, const QueueState& queue, const bind::Enqueued& it) const {
    if (it.after < 0) return queue.before;
    const int c = static_cast<int>(&state - classes_.data());
    const Cause after{c, state.event_of[static_cast<size_t>(it.after)]};
    if (queue.before.event < 0) return after;
    const auto end_of = [&](const Cause& cause) {
      return timeline_.classes[static_cast<size_t>(cause.of_class)].events[static_cast<size_t>(cause.event)].end;
    };
    return end_of(after) > end_of(queue.before) ? after : queue.before;
  }

  void end(int c, QueueState& queue, int action, const Cause& cause, double moving) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    std::vector<Event>& events = timeline_.classes[static_cast<size_t>(c)].events;
    state.event_of[static_cast<size_t>(action)] = static_cast<int>(events.size());
    queue.before = {c, static_cast<int>(events.size())};
    timeline_.classes[static_cast<size_t>(c)].ended = now_;
    events.push_back({action, queue.begin, now_, moving, cause.of_class, cause.event});
    queue.running = false;
    ++queue.next;
    const bind::Enqueued& it = enqueued(state, action);
    if (it.action.phase == Phase::run)
      state.chain[static_cast<size_t>(it.action.task)] =
          chain_before(state, it.action.task) + state.program->seconds[static_cast<size_t>(it.action.task)];
  }

  double chain_before(const ClassState& state, int task) const {
    double longest = 0;
    for (int need : (*state.program->machine->needs)[static_cast<size_t>(task)])
      longest = std::max(longest, state.chain[static_cast<size_t>(need)]);
    return longest;
  }

  // Arrives at the meetings. In the queue of communications, the start ends when its meetings have.
  bool try_start(int c, QueueState& queue, int action, const bind::Enqueued& it) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    const Cause cause = cause_of_begin(state, queue, it);
    if (!queue.posted) {
      state.chain_to_start[it.action.task] = chain_before(state, it.action.task);
      arrive(c, it.action.task, cause);
      queue.posted = true;
    }
    double moving = queue.begin;
    Cause last = cause;
    if (it.queue == QueueKind::communication)
      for (int id : state.under_way[it.action.task].meetings) {
        const Meeting& meeting = meetings_[static_cast<size_t>(id)];
        if (meeting.ended == kNever) return false;
        if (meeting.began > moving) {
          moving = meeting.began;
          last = meeting.last;
        }
      }
    queue.posted = false;
    end(c, queue, action, last, moving);
    return true;
  }

  void arrive(int c, int task, const Cause& cause) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    UnderWay& own = state.under_way[task];
    own = {};
    for (int id : meetings_of(c, step(state, task), task)) {
      Meeting& meeting = meetings_[static_cast<size_t>(id)];
      own.meetings.push_back(id);
      own.left = state.program->transfers[static_cast<size_t>(task)].seconds;
      own.measured = state.program->transfers[static_cast<size_t>(task)].measured;
      meeting.chain[c] = state.chain_to_start[task];
      if (meeting.began == kNever && own.left > meeting.left)  // as long as the slowest member's
        meeting.left = meeting.transfer.seconds = own.left;
      if (meeting.missing.erase(c) == 0) continue;
      meeting.last = cause;
      if (meeting.missing.empty()) begin(meeting);
    }
  }

  void begin(Meeting& meeting) {
    meeting.began = now_;
    if (at_wait_ || meeting.left <= 0) {
      meeting.ended = now_;
      return;
    }
    for (int member : meeting.members) ++classes_[static_cast<size_t>(member)].transfers;
    moving_.push_back(static_cast<int>(&meeting - meetings_.data()));
  }

  bool try_wait(int c, QueueState& queue, int action, const bind::Enqueued& it) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    UnderWay& own = state.under_way[it.action.task];
    Cause last;
    double moving = 0, chain = 0, transfer = 0;
    for (int id : own.meetings) {
      const Meeting& meeting = meetings_[static_cast<size_t>(id)];
      if (meeting.ended == kNever) return false;
      if (meeting.began >= moving) {
        moving = meeting.began;
        last = meeting.last;
      }
      for (const auto& [member, before] : meeting.chain) chain = std::max(chain, before);
      transfer = std::max(transfer, meeting.transfer.seconds);
    }
    if (at_wait_ && own.left > 0) {  // its own thread transfers now
      if (own.began == kNever) {
        own.began = now_;
        ++state.transfers;
      }
      return false;
    }
    const double moved = at_wait_ ? std::max(own.began == kNever ? moving : own.began, moving) : moving;
    if (at_wait_ && own.began != kNever) --state.transfers;
    const bool waited = moving >= queue.begin && last.event >= 0 && now_ > queue.begin;
    end(c, queue, action, waited ? last : cause_of_begin(state, queue, it), std::clamp(moved, queue.begin, now_));
    state.chain[static_cast<size_t>(it.action.task)] = chain + transfer;
    state.under_way.erase(it.action.task);
    return true;
  }

  // The meetings that a start takes part in.
  std::vector<int> meetings_of(int c, const bind::Step& step, int task) {
    const ClassState& state = classes_[static_cast<size_t>(c)];
    const std::optional<Collective> kind = collective_of_op(step.info.op);
    const std::string axes = fmt::format("{}", fmt::join(step.info.axes, ","));
    const Transfer& transfer = state.program->transfers[static_cast<size_t>(task)];
    const auto class_of = [&](int rank) { return rank < 0 ? -1 : setting_.class_of[static_cast<size_t>(rank)]; };
    if (kind == Collective::send) {
      if (step.info.to < 0) return {};
      return {meeting(c, fmt::format("{} {}>{}", axes, c, class_of(step.info.to)), {c}, {c, class_of(step.info.to)},
                      transfer, 0, Way{c, class_of(step.info.to)})};
    }
    if (kind == Collective::recv) {
      const int from = class_of(step.info.from);
      if (from < 0) return {};
      return {meeting(c, fmt::format("{} {}>{}", axes, from, c), {from}, {from, c}, transfer, 1, Way{from, c})};
    }
    if (kind == Collective::permute) {
      std::vector<int> found;
      const int from = class_of(step.info.from), to = class_of(step.info.to);
      const int64_t number = classes_[static_cast<size_t>(c)].met["permute " + axes]++;
      if (from >= 0)
        found.push_back(numbered(fmt::format("permute {} {}>{}", axes, from, c), number, {from, c}, {from, c}, transfer,
                                 Way{from, c}));
      if (to >= 0 && (to != c || from != c))
        found.push_back(
            numbered(fmt::format("permute {} {}>{}", axes, c, to), number, {c, to}, {c, to}, transfer, Way{c, to}));
      return found;
    }
    std::set<int> members;
    for (int member : members_of(state.program->rank, step.info.axes)) members.insert(class_of(member));
    return {meeting(c, fmt::format("{} {}", axes, fmt::join(members, ",")), members, members, transfer, 0, Way{})};
  }

  const std::vector<int>& members_of(int rank, const std::vector<std::string>& axes) {
    const auto [found, fresh] = members_.try_emplace({rank, axes});
    if (fresh) found->second = group_of(rank, parse_axes(axes, setting_.mesh), setting_.mesh);
    return found->second;
  }

  // The class' next meeting of that name. `side`: of a message, 0 for its sender, 1 for its receiver.
  int meeting(int c, const std::string& name, const std::set<int>& needed, const std::set<int>& members,
              const Transfer& transfer, int side, const Way& way) {
    const int64_t number = classes_[static_cast<size_t>(c)].met[fmt::format("{} {}", name, side)]++;
    return numbered(name, number, needed, members, transfer, way);
  }

  int numbered(const std::string& name, int64_t number, const std::set<int>& needed, const std::set<int>& members,
               const Transfer& transfer, const Way& way) {
    std::map<int64_t, int>& named = ids_[name];
    const auto [found, fresh] = named.try_emplace(number, static_cast<int>(meetings_.size()));
    if (!fresh) return found->second;
    Meeting made;
    if (found != named.begin()) made.previous = std::prev(found)->second;
    made.transfer = transfer;
    made.left = made.transfer.seconds;
    made.missing = needed;
    made.members.assign(members.begin(), members.end());
    made.ends = ends_of(way, members);
    meetings_.push_back(std::move(made));
    return found->second;
  }

  // The share of its full speed at which each kernel runs, if ranks share cores. A rank that transfers while it waits
  // does so with one thread.
  double share_of_cores() const {
    if (setting_.machine.cores <= 0) return 1;
    double busy = 0;
    for (const ClassState& state : classes_) {
      const double threads = at_work(state) ? setting_.threads : at_wait_ && state.transfers > 0 ? 1 : 0;
      busy += static_cast<double>(state.program->count) / hosts_ * threads;
    }
    return busy > setting_.machine.cores ? setting_.machine.cores / busy : 1;
  }

  // The share of a core that each rank had when all of them transferred, as their collectives were measured.
  double share_when_measured() const {
    const double ranks = static_cast<double>(setting_.mesh.size()) / hosts_;
    return setting_.machine.cores > 0 ? std::min(1.0, setting_.machine.cores / ranks) : 1;
  }

  static bool has_ended(const ClassState& state) {
    return std::all_of(std::begin(state.queues), std::end(state.queues),
                       [](const QueueState& queue) { return queue.next == queue.actions.size(); });
  }

  // The seconds that are left of the class's current kernel or copy; null: it does neither.
  template <typename State>
  auto at_work(State& state) const -> decltype(&state.before) {
    if (state.before > 0) return &state.before;
    if (has_ended(state)) return state.after > 0 ? &state.after : nullptr;
    auto& queue = state.queues[static_cast<size_t>(QueueKind::compute)];
    const bool runs = queue.running && enqueued(state, queue.actions[queue.next]).action.phase == Phase::run;
    return runs ? &queue.left : nullptr;
  }

  // Where ranks transfer while they wait, it is others that slow a rank's kernel down.
  double kernel_rate(const ClassState& state) const {
    const bool beside = at_wait_ ? any_transfers_ : state.transfers > 0;
    return share_of_cores_ / (beside ? overlap_.slows_computation : 1);
  }

  // Of a transfer by a rank that waits.
  double rate_at_wait(const UnderWay& own) const {
    const double share = share_of_cores_ / (own.measured ? share_when_measured() : 1);
    return share / (any_computes_ ? overlap_.slowed_by_computation : 1);
  }

  // Whether a transfer of the same group is under way, which goes first.
  bool is_queued(const Meeting& meeting) const {
    return meeting.previous >= 0 && meetings_[static_cast<size_t>(meeting.previous)].ended == kNever;
  }

  static std::vector<End> ends_of(const Way& way, const std::set<int>& members) {
    if (way.from >= 0) return {{way.from, false}, {way.to, true}};
    std::vector<End> all;
    for (int member : members) all.insert(all.end(), {{member, false}, {member, true}});
    return all;
  }

  // Transfers that share a level of links out of a class, or into it, share its bandwidth.
  std::vector<double> transfer_rates() const {
    std::map<std::pair<End, std::string>, int> sharing;
    for (int id : moving_) {
      const Meeting& meeting = meetings_[static_cast<size_t>(id)];
      if (is_queued(meeting)) continue;
      for (const End& end : meeting.ends)
        for (const std::string& level : meeting.transfer.levels) ++sharing[{end, level}];
    }
    std::vector<double> rates;
    for (int id : moving_) {
      const Meeting& meeting = meetings_[static_cast<size_t>(id)];
      if (is_queued(meeting)) {
        rates.push_back(0);
        continue;
      }
      int most = 1;
      bool beside = false;
      for (int member : meeting.members) beside = beside || at_work(classes_[static_cast<size_t>(member)]);
      for (const End& end : meeting.ends)
        for (const std::string& level : meeting.transfer.levels) most = std::max(most, sharing[{end, level}]);
      rates.push_back(1.0 / most / (beside ? overlap_.slowed_by_computation : 1));
    }
    return rates;
  }

  double time_to_next() {
    share_of_cores_ = share_of_cores();
    any_transfers_ =
        std::any_of(classes_.begin(), classes_.end(), [](const auto& state) { return state.transfers > 0; });
    any_computes_ = std::any_of(classes_.begin(), classes_.end(), [&](const auto& state) { return at_work(state); });
    transfer_rates_ = transfer_rates();
    double least = kNever;
    for (ClassState& state : classes_) {
      if (const double* left = at_work(state)) least = std::min(least, *left / kernel_rate(state));
      if (at_wait_)
        for (const auto& [task, own] : state.under_way)
          if (own.began != kNever && own.left > 0) least = std::min(least, own.left / rate_at_wait(own));
    }
    for (size_t i = 0; i < moving_.size(); ++i)
      least = std::min(least, meetings_[static_cast<size_t>(moving_[i])].left / transfer_rates_[i]);
    return least;
  }

  void pass(double step) {
    // Sums of times are not exact: so little is nothing.
    constexpr double kEnds = 1e-15;
    const auto reduce = [](double& left, double by) {
      left -= by;
      if (left <= kEnds) left = 0;
    };
    for (size_t c = 0; c < classes_.size(); ++c) account(classes_[c], timeline_.classes[c], step);
    for (size_t c = 0; c < classes_.size(); ++c) {
      ClassState& state = classes_[c];
      if (double* left = at_work(state)) {
        reduce(*left, step * kernel_rate(state));
        timeline_.classes[c].ended = now_ + step;
      }
      if (at_wait_)
        for (auto& [task, own] : state.under_way)
          if (own.began != kNever && own.left > 0) reduce(own.left, step * rate_at_wait(own));
    }
    now_ += step;
    std::vector<int> still;
    for (size_t i = 0; i < moving_.size(); ++i) {
      Meeting& meeting = meetings_[static_cast<size_t>(moving_[i])];
      reduce(meeting.left, step * transfer_rates_[i]);
      if (meeting.left > 0) {
        still.push_back(moving_[i]);
        continue;
      }
      meeting.ended = now_;
      for (int member : meeting.members) --classes_[static_cast<size_t>(member)].transfers;
    }
    moving_ = std::move(still);
  }

  void account(const ClassState& state, ClassTimes& times, double step) const {
    if (at_work(state)) {
      times.compute += step;
      if (state.transfers > 0) times.overlapped += step;
    } else if (state.transfers > 0) {
      times.exposed += step;
    } else {
      times.idle += step;
    }
  }

  void finish() {
    timeline_.seconds = now_;
    std::vector<std::map<std::pair<bool, std::string>, double>> busy(classes_.size());
    for (const Meeting& meeting : meetings_)
      for (const auto& [member, enters] : meeting.ends)
        for (const std::string& level : meeting.transfer.levels)
          busy[static_cast<size_t>(member)][{enters, level}] += meeting.transfer.seconds;
    for (size_t c = 0; c < classes_.size(); ++c) {
      double kernels = classes_[c].program->before + classes_[c].program->after;
      for (const Event& event : timeline_.classes[c].events)
        if (const bind::Enqueued& it = enqueued(classes_[c], event.action); it.action.phase == Phase::run)
          kernels += classes_[c].program->seconds[static_cast<size_t>(it.action.task)];
      timeline_.kernels = std::max(timeline_.kernels, kernels);
      for (const auto& [level, seconds] : busy[c]) timeline_.links = std::max(timeline_.links, seconds);
      for (double chain : classes_[c].chain) timeline_.chain = std::max(timeline_.chain, chain);
    }
  }

  const Setting& setting_;
  bool at_wait_;
  const MachineModel::Overlap& overlap_;
  double hosts_ = 1;
  double now_ = 0;
  std::vector<ClassState> classes_;
  std::vector<Meeting> meetings_;
  std::map<std::string, std::map<int64_t, int>> ids_;  // of meetings, by name and number
  std::map<std::pair<int, std::vector<std::string>>, std::vector<int>> members_;
  std::vector<int> moving_;  // meetings
  // Until the next event:
  double share_of_cores_ = 1;
  bool any_transfers_ = false, any_computes_ = false;
  std::vector<double> transfer_rates_;
  Timeline timeline_;
};

}  // namespace

std::vector<int> running_order(const bind::MachineProgram& machine) {
  std::vector<int> order;
  if (machine.controls.empty()) {
    for (int a = 0; a < static_cast<int>(machine.actions->size()); ++a) order.push_back(a);
    return order;
  }
  for (int at = 0; at < static_cast<int>(machine.controls.size()); ++at) {
    const bind::Control& control = machine.controls[static_cast<size_t>(at)];
    if (control.kind == bind::Control::Kind::act) order.push_back(control.index);
    if (control.kind == bind::Control::Kind::branch && !machine.branches[static_cast<size_t>(control.index)].taken)
      at = control.target - 1;
  }
  return order;
}

Timeline simulate(const std::vector<ClassProgram>& classes, const Setting& setting) {
  return Simulation(classes, setting).run();
}

}  // namespace tessera::sim
