#include "tessera/runtime/queues.h"

namespace tessera::runtime {

device::Queue& Queues::of(const std::string& name) {
  if (const auto known = queues_.find(name); known != queues_.end()) return *known->second;
  const bool computes = name.empty();  // the flight record follows one queue
  auto queue = device_.make_queue(threads_, computes ? &communicators_.flight().step : nullptr);
  return *queues_.emplace(name, std::move(queue)).first->second;
}

// A queue that waits for a failed queue fails, too, so that the computing queue has the first failure. Callers free
// what they have enqueued for when this throws, so nothing may be under way then. The limits of a run pass on all ranks
// at once: they are the reason, too, where another rank has been the first to end the run.
void Queues::finish() {
  const auto look = [this] {
    try {
      if (look_) look_();
      communicators_.require_going_on();
    } catch (const std::exception& error) {
      communicators_.end(error);  // else peers would be waited for
      settle();
      throw;
    }
  };
  try {
    for (auto& [name, queue] : queues_) queue->finish(look);
  } catch (...) {
    if (look_ && communicators_.has_ended()) look_();
    throw;
  }
}

void Queues::settle() noexcept {
  communicators_.abandon();
  for (auto& [name, queue] : queues_) queue->settle();
}

void Queues::reset() {
  settle();
  queues_.clear();
}

}  // namespace tessera::runtime
