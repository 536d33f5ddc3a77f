#pragma once

#include "tessera/ir/dtype.h"

namespace tessera {

/// How far an answer may be from the expected one: |a − b| ≤ absolute + relative·max|expected|.
struct ToleranceOf {
  double absolute = 0;
  double relative = 0;
};

/// The one statement of tolerances. Sums over ranks are reordered, so floats differ by some units in the last place of
/// the largest value: 16-bit floats, which are rounded after each operator, by about five. Integers and bools are
/// exact.
constexpr ToleranceOf tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return {0, 1e-10};
    case DType::float32:
      return {0, 2e-5};
    case DType::float16:
      return {0, 2.5e-3};
    case DType::bfloat16:
      return {0, 2e-2};
    default:
      return {0, 0};
  }
}

/// A model that is computed in a narrower type than its own may lose more by that, on one device already, than
/// tolerance_of allows two answers to be apart. Contrastive models do (CLIP, SigLIP): a score is the product of two
/// unit vectors, nearly orthogonal ones if weights are random, so that errors of a percent of the vectors are some
/// percent of what is left of their sum. An answer of many ranks is right then, too, if it is not farther from the
/// answer in the model's own type than so many times one device's, and not farther than so much of the largest
/// magnitude.
inline constexpr double kOwnLossTimes = 3;
inline constexpr double kMostLoss = 0.1;

}  // namespace tessera
