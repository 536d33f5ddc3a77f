#include <gtest/gtest.h>

#include "kernels/random_tensors.h"
#include "tessera/kernels/cpu/matrix_product.h"

namespace tessera::kernels {
namespace {

#ifndef TESSERA_THREAD_SANITIZER  // libgomp is not instrumented

std::vector<float> product_of(const Tensor& a, const Tensor& b, int threads) {
  ProductSpec spec{.shape = matmul_shape(View::dense(a.dims), View::dense(b.dims), "test"),
                   .operands = DType::float32,
                   .result = DType::float32};
  spec.threads = threads;
  spec.label = "test";
  auto product = make_product(spec);
  Tensor c = Tensor::zeros(DType::float32, {a.dims[0], b.dims[1]});
  Tensor scratch = Tensor::zeros(DType::uint8, {static_cast<int64_t>(product->scratch_bytes() + 1)});
  product->run(a.data, b.data, nullptr, c.mutable_data(), scratch.mutable_data());
  return {c.as<float>().begin(), c.as<float>().end()};
}

// Beside other work one thread does what a team did before.
TEST(TeamProduct, TeamsGiveTheBitsOfOneThread) {
  struct Shape {
    int64_t m, n, k;
  };
  RandomTensors random(7);
  for (const auto& [m, n, k] : {Shape{1, 64, 64}, {5, 300, 77}, {111, 256, 256}, {64, 48, 3072}, {3, 8, 20'000}}) {
    const Tensor a = random.normal_floats({m, k}), b = random.normal_floats({k, n});
    const std::vector<float> alone = product_of(a, b, 1);
    for (const int threads : {2, 3, 8}) {
      EXPECT_EQ(product_of(a, b, threads), alone) << m << "x" << n << "x" << k << " by " << threads << " threads";
    }
  }
}

#endif

}  // namespace
}  // namespace tessera::kernels
