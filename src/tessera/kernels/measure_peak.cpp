#include <thread>

#include "tessera/base/error.h"
#include "tessera/kernels/peak.h"
#include "tessera/profile.h"

namespace tessera {
inline namespace v1 {

MachinePeak measure_peak(DType dtype, int cores) {
  if (dtype != DType::float32 && dtype != DType::bfloat16 && dtype != DType::float16)
    throw Error(ErrorKind::user, "bench",
                "peaks are measured of float32, bfloat16 and float16, not of " + std::string(name_of(dtype)));
  // Measures on a thread of its own, whose OpenMP team ends with it. With more teams than cores, libgomp's threads
  // would sleep between loops and slow down later timings.
  MachinePeak peak;
#ifdef TESSERA_THREAD_SANITIZER
  cores = 1;  // libgomp's barriers are not instrumented
#endif
  std::thread([&] { peak = {kernels::peak_flops(dtype, cores), kernels::peak_bandwidth(cores)}; }).join();
  return peak;
}

}  // namespace v1
}  // namespace tessera
