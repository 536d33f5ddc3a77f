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
/// exact. The type is that in which a tensor is computed, which may be narrower than its own (compare.h's
/// computed_in()).
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

/// A model that is computed in a narrower type than its own may, on one device already, lose more than tolerance_of
/// allows. Contrastive models do (CLIP, SigLIP): a score is the product of two unit vectors, nearly orthogonal ones if
/// weights are random, so that errors of a percent in the vectors are several percent of their small product. The
/// answer of many ranks is then correct, too, if its distance from the answer in the model's own type is at most
/// kOwnLossTimes one device's distance, and at most kMostLoss of the largest magnitude.
inline constexpr double kOwnLossTimes = 3;
inline constexpr double kMostLoss = 0.1;

}  // namespace tessera
