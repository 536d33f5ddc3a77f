#include "tessera/sim/simulate.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "tessera/base/error.h"
#include "tessera/cost/prices.h"
#include "tessera/sim/meetings.h"

namespace tessera::sim {
namespace {

using bind::Phase;

// A class's part in a communication between start and wait.
struct UnderWay {
  std::vector<int> meetings;  // that its wait needs
  double began = kNever;      // when its own transfer began, if ranks transfer only while they wait
  double left = 0;
  bool measured = false;
};

// When a transfer was under way, and what it lost of this to others.
struct Moves {
  double begin = 0, end = 0, shared = 0;
};

// Of a transfer under way.
struct Rate {
  double share = 1;  // of its links that it has; 0: its turn has not come
  double speed = 1;  // with this share
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
  explicit ClassState(const ClassProgram& of)
      : program(&of), queues(of.machine->queues.size()), before(of.before), after(of.after) {
    for (int action : running_order(*of.machine))
      queues[static_cast<size_t>(enqueued(action).queue)].actions.push_back(action);
    event_of.assign(of.machine->actions->size(), -1);
    chain.assign(of.machine->steps.size(), 0);
  }

  const bind::Enqueued& enqueued(int action) const { return (*program->machine->actions)[static_cast<size_t>(action)]; }
  bool has_ended() const {
    return std::all_of(queues.begin(), queues.end(),
                       [](const QueueState& queue) { return queue.next == queue.actions.size(); });
  }
  double chain_before(int task) const {
    double longest = 0;
    for (int need : (*program->machine->needs)[static_cast<size_t>(task)])
      longest = std::max(longest, chain[static_cast<size_t>(need)]);
    return longest;
  }

  const ClassProgram* program;
  std::vector<QueueState> queues;
  std::vector<int> event_of;             // by action: its event; -1: not ended
  std::map<int, UnderWay> under_way;     // by step
  std::vector<double> chain;             // by step: the longest chain that ends with it
  std::map<int, double> chain_to_start;  // by step under way
  double before, after;                  // seconds left for copies of inputs and outputs
  int transfers = 0;                     // under way
};

bool moves_at_wait(const Setting& setting) {
  return setting.machine.progress == MachineModel::Progress::at_wait && !cost::moves_in_background(setting.engine);
}

// Timeline::bound(), once all has ended.
void add_bounds(Timeline& timeline, const std::vector<ClassState>& classes, const MeetingRegistry& meetings) {
  std::vector<std::map<std::pair<bool, std::string>, double>> busy(classes.size());
  for (const Meeting& meeting : meetings.all())
    for (const auto& [member, enters] : meeting.ends)
      for (const std::string& level : meeting.transfer.levels)
        busy[static_cast<size_t>(member)][{enters, level}] += meeting.transfer.seconds;
  for (size_t c = 0; c < classes.size(); ++c) {
    const ClassState& state = classes[c];
    double kernels = state.program->before + state.program->after;
    for (const Event& event : timeline.classes[c].events)
      if (const bind::Enqueued& it = state.enqueued(event.action); it.action.phase == Phase::run)
        kernels += state.program->seconds[static_cast<size_t>(it.action.task)];
    timeline.kernels = std::max(timeline.kernels, kernels);
    for (const auto& [level, seconds] : busy[c]) timeline.links = std::max(timeline.links, seconds);
    for (double chain : state.chain) timeline.chain = std::max(timeline.chain, chain);
  }
}

class Simulation {
 public:
  Simulation(const std::vector<ClassProgram>& programs, const Setting& setting)
      : setting_(setting),
        at_wait_(moves_at_wait(setting)),
        overlap_(setting.machine.overlap_on(setting.engine)),
        meetings_(programs, setting) {
    timeline_.classes.resize(programs.size());
    timeline_.at_wait = at_wait_;
    for (const ClassProgram& program : programs) classes_.emplace_back(program);
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
    for (const ClassState& state : classes_)
      check(state.has_ended(), "the simulation of a program without deadlock ends");
    timeline_.seconds = now_;
    add_bounds(timeline_, classes_, meetings_);
    return std::move(timeline_);
  }

 private:
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
    const bind::Enqueued& it = state.enqueued(action);
    if (!queue.running) {
      if (it.after >= 0 && state.event_of[static_cast<size_t>(it.after)] < 0) return false;
      queue.running = true;
      queue.begin = now_;
      if (it.action.phase == Phase::run) queue.left = state.program->seconds[static_cast<size_t>(it.action.task)];
    }
    switch (it.action.phase) {
      case Phase::run:
        if (queue.left > 0) return false;
        end(c, queue, action, cause_of_begin(state, queue, it));
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

  // `moves`: when the transfer that it waited for was under way.
  void end(int c, QueueState& queue, int action, const Cause& cause, const Moves& moves = {}) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    std::vector<Event>& events = timeline_.classes[static_cast<size_t>(c)].events;
    state.event_of[static_cast<size_t>(action)] = static_cast<int>(events.size());
    queue.before = {c, static_cast<int>(events.size())};
    timeline_.classes[static_cast<size_t>(c)].ended = now_;
    events.push_back({action, queue.begin, now_, moves.begin, moves.end, moves.shared, cause.of_class, cause.event});
    queue.running = false;
    ++queue.next;
    const bind::Enqueued& it = state.enqueued(action);
    if (it.action.phase == Phase::run)
      state.chain[static_cast<size_t>(it.action.task)] =
          state.chain_before(it.action.task) + state.program->seconds[static_cast<size_t>(it.action.task)];
  }

  // Arrives at the meetings. In a queue of communications, the start ends when its meetings have.
  bool try_start(int c, QueueState& queue, int action, const bind::Enqueued& it) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    const Cause cause = cause_of_begin(state, queue, it);
    if (!queue.posted) {
      state.chain_to_start[it.action.task] = state.chain_before(it.action.task);
      arrive(c, it.action.task, cause);
      queue.posted = true;
    }
    double moving = queue.begin, ended = 0, shared = 0;
    Cause last = cause;
    if (it.queue != bind::kComputing)
      for (int id : state.under_way[it.action.task].meetings) {
        const Meeting& meeting = meetings_[id];
        if (meeting.ended == kNever) return false;
        if (meeting.ended >= ended) {
          ended = meeting.ended;
          shared = meeting.shared;
        }
        if (meeting.began > moving) {
          moving = meeting.began;
          last = meeting.last;
        }
      }
    queue.posted = false;
    end(c, queue, action, last, {moving, now_, shared});
    return true;
  }

  void arrive(int c, int task, const Cause& cause) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    UnderWay& own = state.under_way[task];
    own = {};
    for (int id : meetings_.next_of(c, task)) {
      Meeting& meeting = meetings_[id];
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
    moving_.push_back(meeting.id);
  }

  bool try_wait(int c, QueueState& queue, int action, const bind::Enqueued& it) {
    ClassState& state = classes_[static_cast<size_t>(c)];
    UnderWay& own = state.under_way[it.action.task];
    Cause last;
    double moving = 0, ended = 0, shared = 0, chain = 0, transfer = 0;
    for (int id : own.meetings) {
      const Meeting& meeting = meetings_[id];
      if (meeting.ended == kNever) return false;
      if (meeting.ended >= ended) {
        ended = meeting.ended;
        shared = meeting.shared;
      }
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
    const double began = at_wait_ && own.began != kNever ? std::max(own.began, moving) : moving;
    if (at_wait_ && own.began != kNever) --state.transfers;
    const bool waited = moving >= queue.begin && last.event >= 0 && now_ > queue.begin;
    end(c, queue, action, waited ? last : cause_of_begin(state, queue, it), {began, at_wait_ ? now_ : ended, shared});
    state.chain[static_cast<size_t>(it.action.task)] = chain + transfer;
    state.under_way.erase(it.action.task);
    return true;
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

  // The seconds that are left of the class's current kernel or copy; null: it does neither.
  template <typename State>
  auto at_work(State& state) const -> decltype(&state.before) {
    if (state.before > 0) return &state.before;
    if (state.has_ended()) return state.after > 0 ? &state.after : nullptr;
    auto& queue = state.queues[bind::kComputing];
    const bool runs = queue.running && state.enqueued(queue.actions[queue.next]).action.phase == Phase::run;
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
    return meeting.previous >= 0 && meetings_[meeting.previous].ended == kNever;
  }

  // Transfers that share a level of links out of a class, or into it, share its bandwidth.
  std::vector<Rate> transfer_rates() const {
    std::map<std::pair<End, std::string>, int> sharing;
    for (int id : moving_) {
      const Meeting& meeting = meetings_[id];
      if (is_queued(meeting)) continue;
      for (const End& end : meeting.ends)
        for (const std::string& level : meeting.transfer.levels) ++sharing[{end, level}];
    }
    std::vector<Rate> rates;
    for (int id : moving_) {
      const Meeting& meeting = meetings_[id];
      if (is_queued(meeting)) {
        rates.push_back({0, 0});
        continue;
      }
      int most = 1;
      bool beside = false;
      for (int member : meeting.members) beside = beside || at_work(classes_[static_cast<size_t>(member)]);
      for (const End& end : meeting.ends)
        for (const std::string& level : meeting.transfer.levels) most = std::max(most, sharing[{end, level}]);
      const double share = 1.0 / most;
      rates.push_back({share, share / (beside ? overlap_.slowed_by_computation : 1)});
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
      least = std::min(least, meetings_[moving_[i]].left / transfer_rates_[i].speed);
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
      Meeting& meeting = meetings_[moving_[i]];
      reduce(meeting.left, step * transfer_rates_[i].speed);
      meeting.shared += step * (1 - transfer_rates_[i].share);
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

  const Setting& setting_;
  bool at_wait_;
  const MachineModel::Overlap& overlap_;
  double hosts_ = 1;
  double now_ = 0;
  std::vector<ClassState> classes_;
  MeetingRegistry meetings_;
  std::vector<int> moving_;  // meetings
  // Until the next event:
  double share_of_cores_ = 1;
  bool any_transfers_ = false, any_computes_ = false;
  std::vector<Rate> transfer_rates_;
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
