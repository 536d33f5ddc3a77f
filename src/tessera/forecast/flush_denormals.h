#pragma once

namespace tessera::forecast {

/// Makes the threads that kernels use from now on, called by this thread with so many threads of OpenMP, take denormal
/// numbers for zeros. Kernels are measured on meaningless values: of these, gradients become denormal, which some
/// processors compute fifty times as slowly. Does nothing on a processor that cannot.
void flush_denormals(int threads);

}  // namespace tessera::forecast
