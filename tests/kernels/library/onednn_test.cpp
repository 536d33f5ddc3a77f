// What we need of oneDNN, and what we keep it from.
#include "tessera/kernels/cpu/library/onednn.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace tessera::kernels::onednn {
namespace {

/// A convolution's descriptor for rows of channels, with the weights' layout left to the library.
auto described(DType dtype, const Dims& x, const Dims& weights, const Dims& y, int64_t stride, int64_t pad) {
  const auto rows = [&](const Dims& dims) { return strided(dtype, dims, {dims[1] * dims[2], 1, dims[1]}); };
  return convolution(rows(x), any_layout(dtype, weights), Md(), rows(y), {{stride}, {1}, {pad}, {0}});
}

/// Its library keeps primitives in mind, which this leaves out while it lives.
class WithoutCache {
 public:
  WithoutCache() : before_(dnnl::get_primitive_cache_capacity()) { dnnl::set_primitive_cache_capacity(0); }
  ~WithoutCache() { dnnl::set_primitive_cache_capacity(before_); }
  WithoutCache(const WithoutCache&) = delete;
  WithoutCache& operator=(const WithoutCache&) = delete;

 private:
  int before_;
};

// Ranks of one process prepare kernels of several types at once.
TEST(OneDnn, describes_convolutions_of_two_types_at_once) {
  constexpr int kTimes = 600;
  const Dims x_dims = {2, 1, 7}, w_dims = {3, 1, 3}, y_dims = {2, 3, 4};
  const std::array<float, 14> x = {1, 2, 3, 4, 5, 6, 7, -1, -2, -3, -4, -5, -6, -7};
  const std::array<float, 9> w = {1, 10, 100, 2, 20, 200, 3, 30, 300};
  const std::array<float, 24> expected = {100,  200,  300,  321,  642,  963,  543,  1086,  1629,  765,  1530,  2295,
                                          -100, -200, -300, -321, -642, -963, -543, -1086, -1629, -765, -1530, -2295};
  const WithoutCache fresh;
  std::atomic<bool> done = false;
  std::thread other([&] {
    const TeamScope team(1);
    while (!done) described(DType::bfloat16, {2, 8, 5}, {8, 8, 3}, {2, 8, 3}, 1, 0);
  });
  const TeamScope team(1);
  int wrong = 0;
  for (int time = 0; time < kTimes; ++time) {
    const auto desc = described(DType::float32, x_dims, w_dims, y_dims, 2, 2);
    if (!desc) break;  // this CPU runs loops of our own
    const Md given = dense(DType::float32, w_dims), packed = desc->weights_desc();
    std::vector<float> weights(packed.get_size() / sizeof(float));
    if (const auto pack = reorder(given, packed, 1)) {
      std::vector<std::byte> scratch(pack->scratch_bytes());
      pack->run(std::array<const void*, 2>{w.data(), weights.data()}, scratch.data());
    } else {
      weights.assign(w.begin(), w.end());
    }
    Primitive product(dnnl::convolution_forward(*desc), desc->scratchpad_desc(),
                      {{DNNL_ARG_SRC, desc->src_desc()}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, desc->dst_desc()}},
                      1);
    std::array<float, 24> y{};
    std::vector<std::byte> scratch(product.scratch_bytes() + 64);
    void* at = scratch.data();
    size_t room = scratch.size();
    product.run(std::array<const void*, 3>{x.data(), weights.data(), y.data()},
                std::align(64, product.scratch_bytes(), at, room));
    wrong += y != expected;
  }
  done = true;
  other.join();
  EXPECT_EQ(wrong, 0) << "of " << kTimes;
}

}  // namespace
}  // namespace tessera::kernels::onednn
