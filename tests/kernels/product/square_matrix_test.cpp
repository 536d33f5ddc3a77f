#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

std::vector<float> inverse(Dims dims, const std::vector<float>& elements) {
  return values_of<float>(
      run_kernel_one("Inverse", {floats(dims, elements)}, DType::float32, dims, {.domain = "com.microsoft"}));
}

TEST(SquareMatrices, HaveDeterminants) {
  const Tensor x = floats({3, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0, 2, 4, 1, 2});
  EXPECT_THAT(values_of<float>(run_kernel_one("Det", {x}, DType::float32, {3})), ElementsAre(-2, -1, 0));
}

TEST(SquareMatrices, AreInvertedOneByOne) {
  EXPECT_THAT(inverse({2, 2, 2}, {1, 2, 3, 4, 0, 2, 1, 0}),
              Pointwise(FloatNear(1e-6), {-2.0F, 1.0F, 1.5F, -0.5F, 0.0F, 1.0F, 0.5F, 0.0F}));
  // The first pivot is 0, and the largest of each column is in another row.
  EXPECT_THAT(inverse({3, 3}, {0, 1, 4, 2, 0, 1, 8, 1, 0}),
              Pointwise(FloatNear(1e-6), {-0.0625F, 0.25F, 0.0625F, 0.5F, -2.0F, 0.5F, 0.125F, 0.5F, -0.125F}));
}

TEST(SquareMatrices, MayBeNoneAtAll) {
  EXPECT_TRUE(inverse({0, 3, 3}, {}).empty());
  EXPECT_TRUE(inverse({2, 0, 0}, {}).empty());
  EXPECT_THAT(values_of<float>(run_kernel_one("Det", {floats({2, 0, 0}, {})}, DType::float32, {2})), ElementsAre(1, 1));
}

TEST(SquareMatrices, HaveNoFiniteInverseIfTheyAreSingular) {
  for (const float element : inverse({2, 2}, {1, 2, 2, 4})) EXPECT_FALSE(std::isfinite(element));
}

}  // namespace
}  // namespace tessera::kernels
