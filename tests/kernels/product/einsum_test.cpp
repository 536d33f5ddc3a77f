#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using testing::Each;
using testing::ElementsAre;

std::vector<float> run_einsum(const std::string& equation, const std::vector<Tensor>& inputs, Dims result) {
  return values_of<float>(
      run_kernel_one("Einsum", inputs, DType::float32, std::move(result), {.attributes = {{"equation", equation}}}));
}

const Tensor a = floats({2, 3}, {1, 2, 3, 4, 5, 6});
const Tensor b = floats({3, 2}, {1, 10, 100, 1, 10, 100});

TEST(Einsum, multiplies_transposes_and_sums) {
  EXPECT_THAT(run_einsum("ij,jk->ik", {a, b}, {2, 2}), ElementsAre(231, 312, 564, 645));
  EXPECT_THAT(run_einsum("ij,jk", {a, b}, {2, 2}), ElementsAre(231, 312, 564, 645));
  EXPECT_THAT(run_einsum("ij->ji", {a}, {3, 2}), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(run_einsum("ij->", {a}, {}), ElementsAre(21));
  EXPECT_THAT(run_einsum("i,j->ij", {floats({2}, {2, 3}), floats({2}, {5, 7})}, {2, 2}), ElementsAre(10, 14, 15, 21));
  EXPECT_THAT(run_einsum("ij,ij,ij->i", {a, a, a}, {2}), ElementsAre(36, 405));
}

TEST(Einsum, takes_diagonals_and_broadcasts_ellipses) {
  const Tensor square = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(run_einsum("ii->i", {square}, {2}), ElementsAre(1, 4));
  EXPECT_THAT(run_einsum("ii", {square}, {}), ElementsAre(5));
  const Tensor batch = floats({2, 1, 2}, {1, 2, 3, 4});
  EXPECT_THAT(run_einsum("...i,ij->...j", {batch, square}, {2, 1, 2}), ElementsAre(7, 10, 15, 22));
}

TEST(Einsum, a_sum_over_nothing_is_zero) {
  EXPECT_THAT(run_einsum("ij,jk->ik", {floats({2, 0}, {}), floats({0, 3}, {})}, {2, 3}), Each(0));
  EXPECT_THAT(run_einsum("ij->ji", {floats({0, 3}, {})}, {3, 0}), ElementsAre());
}

TEST(Einsum, integers_wrap_around) {
  const Tensor x = Tensor::of<int32_t>(DType::int32, {2}, {INT32_MAX, -3});
  const Tensor y =
      run_kernel_one("Einsum", {x, x}, DType::int32, {2}, {.attributes = {{"equation", std::string("i,i->i")}}});
  EXPECT_THAT(values_of<int32_t>(y), ElementsAre(1, 9));
}

TEST(Einsum, extents_that_do_not_fit_are_refused) {
  EXPECT_THROW(run_einsum("ij,jk->ik", {a, a}, {2, 3}), Error);
  EXPECT_THROW(run_einsum("ij->i", {a}, {3}), Error);
}

}  // namespace
}  // namespace tessera::kernels
