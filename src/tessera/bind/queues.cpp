#include "tessera/bind/order.h"

namespace tessera::bind {

// A queue of communications runs each of its own whole, and a wait makes the computing queue wait. One starts after all
// work that the computing queue got before it, because that work makes its operands, ends what they came from, and
// frees the memory of its result.
std::vector<Enqueued> on_queues(const std::vector<Action>& actions, const std::vector<Span>& spans,
                                const std::vector<int>& queue_of) {
  std::vector<Enqueued> enqueued;
  enqueued.reserve(actions.size());
  int computed = -1;
  for (const Action& action : actions) {
    Enqueued it{action};
    const bool has_queue = queue_of[action.task] != kComputing;
    if (action.phase == Phase::start && has_queue) {
      it.queue = queue_of[action.task];
      it.after = computed;
    } else {
      if (action.phase == Phase::wait && has_queue) it.after = spans[action.task].begin;
      computed = static_cast<int>(enqueued.size());
    }
    if (it.after >= 0) enqueued[it.after].signals = true;
    enqueued.push_back(it);
  }
  return enqueued;
}

}  // namespace tessera::bind
