#include "tessera/forecast/flush_denormals.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace tessera::forecast {
namespace {

void flush_in_this_thread() {
#if defined(__x86_64__)
  constexpr unsigned kResultsToZero = 0x8000, kOperandsAreZeros = 0x0040;
  _mm_setcsr(_mm_getcsr() | kResultsToZero | kOperandsAreZeros);
#elif defined(__aarch64__)
  constexpr uint64_t kFlush = uint64_t{1} << 24;
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | kFlush));
#endif
}

}  // namespace

void flush_denormals(int threads) {
#pragma omp parallel num_threads(threads)
  flush_in_this_thread();
}

}  // namespace tessera::forecast
