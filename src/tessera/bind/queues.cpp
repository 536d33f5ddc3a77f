#include "tessera/bind/order.h"

namespace tessera::bind {

// On an asynchronous device, the second queue runs a whole communication, and its wait makes the computing queue wait.
// It starts after all work that is enqueued before it, because that work makes its operands and frees the memory of its
// result.
std::vector<Enqueued> on_queues(const std::vector<Action>& actions, const std::vector<Span>& spans,
                                bool is_asynchronous) {
  std::vector<Enqueued> enqueued;
  enqueued.reserve(actions.size());
  for (const Action& action : actions) enqueued.push_back({action});
  if (!is_asynchronous) return enqueued;
  int computed = -1;
  for (int a = 0; a < static_cast<int>(actions.size()); ++a) {
    Enqueued& it = enqueued[a];
    if (it.action.phase == Phase::start) {
      it.queue = QueueKind::communication;
      it.after = computed;
    } else {
      if (it.action.phase == Phase::wait) it.after = spans[it.action.task].begin;
      computed = a;
    }
    if (it.after >= 0) enqueued[it.after].signals = true;
  }
  return enqueued;
}

}  // namespace tessera::bind
