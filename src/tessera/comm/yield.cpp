#include "tessera/comm/yield.h"

#include <thread>

namespace tessera::comm {

bool yield_for_a_moment() {
  thread_local Yielding yielding;
  const Yielding::Clock::time_point begin = Yielding::Clock::now();
  if (!yielding.pays(begin)) return false;
  std::this_thread::yield();
  const Yielding::Clock::time_point end = Yielding::Clock::now();
  yielding.note(begin, end);
  return yielding.pays(end);
}

}  // namespace tessera::comm
