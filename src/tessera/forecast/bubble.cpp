// Why the ranks of a pipeline are idle.
#include <algorithm>
#include <limits>

#include "tessera/time.h"

namespace tessera {
namespace {

constexpr double kMillis = 1e-3;  // of a microsecond

bool is_forward(const ProfileEvent& event) {
  return event.cell.find('F') != std::string::npos;
}

/// Of one rank, in microseconds.
struct RankIdle {
  PipelineIdle idle;
  double busy = 0, span = 0;
};

// A wait is the fault of a peer until the last one has come, and of the link from then on.
RankIdle idle_of(const RankProfile& rank, double duration) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double first = kNever, last = 0, first_gradient = kNever, last_forward = 0;
  for (const ProfileEvent& event : rank.events) {
    if (event.communication || event.cell.empty()) continue;
    const double end = event.begin + event.duration;
    first = std::min(first, event.begin);
    last = std::max(last, end);
    if (is_forward(event))
      last_forward = std::max(last_forward, end);
    else
      first_gradient = std::min(first_gradient, event.begin);
  }
  RankIdle made;
  if (first == kNever) return made;
  if (first_gradient == kNever) first_gradient = first;  // a forward pass alone
  for (const ProfileEvent& event : rank.events) {
    if (!event.communication) {
      if (event.begin >= first && event.begin < last) made.busy += event.duration;
      continue;
    }
    if (event.begin < first_gradient) {
      made.idle.warm_up += event.duration;
    } else if (event.begin >= last_forward) {
      made.idle.tail += event.duration;
    } else {
      made.idle.imbalance += event.waiting;
      made.idle.link += event.duration - event.waiting;
    }
  }
  made.span = last - first;
  made.idle.tail += std::max(0.0, duration - rank.end);
  return made;
}

}  // namespace

inline namespace v1 {

std::optional<PipelineBubble> pipeline_bubble(const Profile& profile) {
  PipelineBubble made;
  double busiest = 0, longest = 0;
  for (const RankProfile& rank : profile.ranks) {
    const RankIdle found = idle_of(rank, profile.duration);
    busiest = std::max(busiest, found.busy);
    longest = std::max(longest, found.span);
    made.ranks.push_back({found.idle.warm_up * kMillis, found.idle.imbalance * kMillis, found.idle.link * kMillis,
                          found.idle.tail * kMillis});
  }
  if (longest <= 0) return std::nullopt;
  made.share = std::max(0.0, 1 - busiest / longest);
  return made;
}

}  // namespace v1
}  // namespace tessera
