#pragma once

#include "train/differentiated.h"

namespace tessera::train {

/// How far a gradient may be from the difference quotients, as a part of the largest of them or of 1; and the step.
struct Closeness {
  DType type;
  double step, relative;
};
inline constexpr Closeness kFloat64{DType::float64, 0x1p-16, 1e-6};
/// For kernels without float64. The step is a power of two, in which what is linear or bilinear has no error.
inline constexpr Closeness kFloat32{DType::float32, 0x1p-5, 2e-4};

/// Compares gradients with difference quotients; differences are failures of the current test.
void expect_close(const Differentiated& made, const Closeness& closeness);

}  // namespace tessera::train
