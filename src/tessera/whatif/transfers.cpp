#include "tessera/whatif/transfers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "tessera/cost/links.h"
#include "tessera/ir/collective.h"
#include "tessera/mesh/group.h"
#include "tessera/sim/transfer.h"
#include "tessera/whatif/sharing.h"
#include "tessera/whatif/statistics.h"

namespace tessera::whatif {
namespace {

using bind::Phase;

// A wait that is shorter has found its communication at its end, and has copied the result at most; so has one that is
// shorter than this share of what the communication takes, because of what disturbs threads.
constexpr double kShortest = 30e-6, kCopiedPerSecond = 4e9, kLeastShare = 0.25;

constexpr int kRounds = 8;  // of lines and times

using Kind = std::pair<std::string, std::vector<std::string>>;  // operator and axes

// What a rank saw of a communication.
struct Seen {
  Moved moved;
  const bind::Step* step = nullptr;
  std::string queue;                // of a device
  std::vector<std::string> levels;  // of links
  double bytes = 0;
  int64_t number = 0;                                     // of its start, among those of the rank over the same axes
  double complete = 0;                                    // all ranks had started it
  double wait = 0, ended = 0;                             // its wait, since it was complete
  double shortest = 0;                                    // seconds of a wait that has seen its end
  std::optional<double> end;                              // if a rank waited for it
  double limit = 0;                                       // otherwise it had ended by then
  double most = std::numeric_limits<double>::infinity();  // seconds that it can take by the links' description
  double moving = 0, moved_at = 0;                        // when it was under way
  double lost = 0;                                        // seconds of these, to transfers on other links of its rank

  Kind kind() const { return {step->info.op, step->info.axes}; }
};

// On the links that the trace describes; infinite if it describes none of these.
double modelled_seconds(const Recording& recording, const bind::Step& step) {
  static const MachineModel unmeasured;
  static const std::vector<int> no_classes;
  if (cost::levels_of(parse_axes(step.info.axes, recording.mesh), recording.mesh, recording.topology).empty())
    return std::numeric_limits<double>::infinity();
  return sim::transfer_of(step, {recording.mesh, recording.topology, unmeasured, no_classes, recording.engine}).seconds;
}

// By rank, in the order in which waits ended.
std::vector<std::vector<Seen>> seen_by_ranks(const Recording& recording, const RecordedRun& run) {
  std::vector<std::vector<Seen>> ranks(run.ranks.size());
  const double copied = recording.is_asynchronous() ? std::numeric_limits<double>::infinity() : kCopiedPerSecond;
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const bind::MachineProgram& machine = *recording.ranks[r].machine;
    std::map<std::vector<std::string>, int64_t> met;
    std::map<int, int64_t> started;  // numbers, by step
    std::map<int, int> queues;       // of starts, by step
    for (const bind::Enqueued& it : *machine.actions)
      if (it.action.phase == Phase::start) queues[it.action.task] = it.queue;
    for (const RecordedEvent& event : run.ranks[r].events) {
      const bind::Action& action = (*machine.actions)[static_cast<size_t>(event.action)].action;
      if (action.phase == Phase::run) continue;
      const bind::StepInfo& info = machine.steps[static_cast<size_t>(action.task)]->info;
      const bool is_message = traits_of(*collective_of_op(info.op)).message;  // of which ranks have different numbers
      int64_t& met_there = met[is_message ? std::vector<std::string>() : info.axes];
      if (action.phase == Phase::start) {
        started[action.task] = met_there++;
        continue;
      }
      Seen& seen = ranks[r].emplace_back();
      const auto start = started.extract(action.task);  // none: the event is both its start and its wait
      seen.number = start ? start.mapped() : met_there++;
      seen.moved = {r, static_cast<size_t>(action.task)};
      seen.step = machine.steps[seen.moved.step].get();
      seen.queue = machine.queues[static_cast<size_t>(queues.at(action.task))];
      seen.levels = recording.links_of(*seen.step);
      seen.bytes = sim::moved_bytes(*seen.step);
      seen.complete = event.complete;
      seen.wait = std::max(event.begin, event.complete);
      seen.ended = std::max(event.end, seen.wait);
      if (event.complete < event.begin) seen.shortest = kShortest + 2 * seen.bytes / copied;
      seen.most = modelled_seconds(recording, *seen.step);
    }
  }
  return ranks;
}

// What communications take by their bytes, as far as it is known.
class Lines {
 public:
  void add(const Seen& seen, double seconds) {
    if (seconds <= 0 || seen.bytes <= 0) return;
    points_[seen.kind()][seen.bytes].push_back(seconds);
    all_[seen.bytes].push_back(seconds);
  }
  void fit() {
    for (const auto& [kind, points] : points_) lines_[kind] = line_through(medians(points));
    if (!all_.empty()) any_ = line_through(medians(all_));
  }
  // Of a kind whose end was never seen, as others.
  double at(const Seen& seen) const {
    const auto line = lines_.find(seen.kind());
    const double known = line != lines_.end() ? line->second.at(seen.bytes)
                         : any_               ? any_->at(seen.bytes)
                                              : std::numeric_limits<double>::infinity();
    return std::min(known, seen.most);
  }

 private:
  using Points = std::map<double, std::vector<double>>;  // seconds, by bytes
  static std::vector<std::pair<double, double>> medians(const Points& points) {
    std::vector<std::pair<double, double>> all;
    for (const auto& [bytes, seconds] : points) all.emplace_back(bytes, median(seconds));
    return all;
  }

  std::map<Kind, Points> points_;
  Points all_;
  std::map<Kind, Line> lines_;
  std::optional<Line> any_;
};

// The members of each collective; of each message, either side by itself.
std::vector<std::vector<Seen*>> meetings_of(const Recording& recording, std::vector<std::vector<Seen>>& ranks) {
  std::map<std::pair<std::vector<std::string>, int>, std::map<int64_t, std::vector<Seen*>>> collectives;
  std::vector<std::vector<Seen*>> meetings;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::map<std::vector<std::string>, int> leaders;
    for (Seen& seen : ranks[r]) {
      const std::vector<std::string>& axes = seen.step->info.axes;
      if (traits_of(*collective_of_op(seen.step->info.op)).message) {
        meetings.push_back({&seen});
        continue;
      }
      const auto [leader, fresh] = leaders.try_emplace(axes);
      if (fresh)
        leader->second = group_of(static_cast<int64_t>(r), parse_axes(axes, recording.mesh), recording.mesh).front();
      collectives[{axes, leader->second}][seen.number].push_back(&seen);
    }
  }
  for (auto& [group, numbered] : collectives)
    for (auto& [number, members] : numbered) meetings.push_back(std::move(members));
  return meetings;
}

// A collective ends for all members at the same time: the last of those that waited saw it.
void see_ends(const std::vector<std::vector<Seen*>>& meetings, const Lines& lines) {
  for (const std::vector<Seen*>& members : meetings) {
    std::optional<double> end;
    double limit = std::numeric_limits<double>::infinity();
    for (const Seen* seen : members) {
      const double takes = lines.at(*seen);
      const bool short_wait = std::isfinite(takes) && seen->ended - seen->wait < kLeastShare * takes;
      const bool saw = seen->shortest == 0 || (seen->ended - seen->wait >= seen->shortest && !short_wait);
      if (saw) end = std::max(end.value_or(0), seen->ended);
      limit = std::min(limit, seen->wait);
    }
    for (Seen* seen : members) {
      seen->end = end;
      seen->limit = limit;
      seen->moved.hidden = !end;
    }
  }
}

// When a rank's link moves what, in its order. Without lines: as if what ended unseen took no time.
void divide(const std::vector<Seen*>& link, const Lines* lines) {
  double free = 0;   // the link has moved all before
  double since = 0;  // of the time that is not divided yet
  std::vector<Seen*> pending;
  double expected = 0;  // the sum of what they take
  for (Seen* seen : link) {
    if (seen->complete >= free) {
      pending.clear();
      expected = 0;
      since = free = seen->complete;
    }
    double takes = lines ? lines->at(*seen) + seen->lost : seen->end ? 1 : 0;
    if (!seen->end)
      takes = std::clamp(takes, 0.0, std::max(0.0, seen->limit - free));
    else if (!std::isfinite(takes))
      takes = std::max(0.0, *seen->end - since);
    seen->moving = free;
    seen->moved_at = free += takes;
    pending.push_back(seen);
    expected += takes;
    if (!seen->end) continue;
    const double measured = std::max(0.0, *seen->end - since);
    double next = since;
    for (Seen* each : pending) {
      const double share = expected > 0 ? (each->moved_at - each->moving) * measured / expected : 0;
      each->moving = next;
      each->moved_at = next += share;
    }
    pending.clear();
    expected = 0;
    since = free = std::max(since, *seen->end);
  }
}

// By rank and link, in the order in which they move.
std::vector<std::vector<Seen*>> links_of(const Recording& recording, std::vector<std::vector<Seen>>& ranks) {
  const bool by_queue = recording.is_asynchronous();
  std::map<std::pair<size_t, std::vector<std::string>>, std::vector<Seen*>> links;
  for (std::vector<Seen>& rank : ranks)
    for (Seen& seen : rank) {
      // A device's queue moves one after the other, over any links.
      const auto names = by_queue ? std::vector{seen.queue} : seen.levels;
      links[{seen.moved.rank, names}].push_back(&seen);
    }
  std::vector<std::vector<Seen*>> ordered;
  for (auto& [name, link] : links) {
    std::stable_sort(link.begin(), link.end(), [](const Seen* a, const Seen* b) { return a->complete < b->complete; });
    ordered.push_back(std::move(link));
  }
  return ordered;
}

// What the rank's other links take from each transfer. Its ranks move at the pace of the one that loses most.
void share(std::vector<std::vector<Seen>>& ranks, const std::vector<std::vector<Seen*>>& meetings) {
  for (std::vector<Seen>& rank : ranks) {
    std::vector<Occupation> occupations;
    for (const Seen& seen : rank) {
      const Collective kind = *collective_of_op(seen.step->info.op);
      occupations.push_back(
          {seen.moving, seen.moved_at, seen.levels, kind != Collective::recv, kind != Collective::send});
    }
    const std::vector<double> lost = lost_to_sharing(occupations);
    for (size_t s = 0; s < rank.size(); ++s) rank[s].lost = lost[s];
  }
  for (const std::vector<Seen*>& members : meetings) {
    double most = 0;  // of the seconds that it takes
    for (const Seen* seen : members)
      if (seen->lost > 0) most = std::max(most, seen->lost / (seen->moved_at - seen->moving));
    for (Seen* seen : members) {
      seen->lost = most * (seen->moved_at - seen->moving);
      seen->moved.seconds = seen->moved_at - seen->moving - seen->lost;
    }
  }
}

void divide_links(const Recording& recording, std::vector<std::vector<Seen>>& ranks) {
  const std::vector<std::vector<Seen*>> meetings = meetings_of(recording, ranks), links = links_of(recording, ranks);
  Lines lines;
  for (int round = 0; round < kRounds; ++round) {
    see_ends(meetings, lines);
    Lines found;
    for (const std::vector<Seen*>& link : links) divide(link, round > 0 ? &lines : nullptr);
    share(ranks, meetings);
    for (const std::vector<Seen>& rank : ranks)
      for (const Seen& seen : rank)
        if (seen.end) found.add(seen, seen.moved.seconds);
    found.fit();
    lines = std::move(found);
  }
}

}  // namespace

std::vector<Moved> transfers_of(const Recording& recording, const RecordedRun& run) {
  std::vector<std::vector<Seen>> ranks = seen_by_ranks(recording, run);
  if (recording.moves_in_background())
    divide_links(recording, ranks);
  else
    for (std::vector<Seen>& rank : ranks)
      for (Seen& seen : rank) seen.moved.seconds = seen.ended - seen.wait;
  std::vector<Moved> all;
  for (const std::vector<Seen>& rank : ranks)
    for (const Seen& seen : rank) all.push_back(seen.moved);
  return all;
}

}  // namespace tessera::whatif
