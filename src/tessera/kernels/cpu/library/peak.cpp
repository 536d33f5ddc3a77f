#include "tessera/kernels/peak.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/library/onednn.h"
#include "tessera/kernels/cpu/product/matrix_product.h"

namespace tessera::kernels {
namespace {

// Under a sanitizer, measurements mean nothing; then this only checks that they run.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int64_t kRows = 64, kRowsOfMany = 64, kWords = int64_t{1} << 16;
#else
constexpr int64_t kRows = 1024, kRowsOfMany = 1536, kWords = int64_t{32} << 20;
#endif
constexpr int kMany = 16;  ///< threads, to which a smaller product gives too little work each
constexpr int kTrials = 8;
constexpr int kByte = 0x3f;  // repeated, about 0.75 in float32 and bfloat16: zeros would take less power

template <typename Work>
double best_seconds(Work work) {
  using Clock = std::chrono::steady_clock;
  work();
  double best = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Clock::time_point start = Clock::now();
    work();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = trial == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

TESSERA_MULTIVERSION int64_t sum_of(const int64_t* words, int64_t count) {
  int64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

// The speed of a product by a packed weight, or by a plain one; 0 if there is none.
double flops_of_product(DType dtype, bool packed_weight, int threads) {
  const int64_t rows = threads < kMany ? kRows : kRowsOfMany;
  const Dims square{rows, rows};
  Tensor a = Tensor::zeros(dtype, square), c = Tensor::zeros(dtype, square);
  std::memset(a.mutable_data(), kByte, a.bytes);
  ProductSpec spec{
      .shape = matmul_shape(View::dense(square), View::dense(square), "peak"), .operands = dtype, .result = dtype};
  if (packed_weight) spec.weight = matmul_weight_layout(dtype, square, false);
  spec.threads = threads;
  spec.label = "peak";
  Tensor packed = Tensor::zeros(DType::uint8, {static_cast<int64_t>(spec.weight ? spec.weight->bytes() : 0)});
  if (!spec.weight) packed = a;
  std::memset(packed.mutable_data(), kByte, packed.bytes);
  auto product = make_product(spec);
  if (!product) return 0;  // the type has no products here
  Tensor scratch = Tensor::zeros(DType::uint8, {static_cast<int64_t>(product->scratch_bytes() + 1)});
  const double seconds =
      best_seconds([&] { product->run(a.data, packed.data, nullptr, c.mutable_data(), scratch.mutable_data()); });
  return 2.0 * static_cast<double>(rows * rows * rows) / seconds;
}

}  // namespace

double peak_flops(DType dtype, int threads) {
  return std::max(flops_of_product(dtype, true, threads), flops_of_product(dtype, false, threads));
}

double peak_bandwidth(int threads) {
  const std::vector<int64_t> memory(kWords, 1);
  int64_t sum = 0;
  const double seconds = best_seconds([&] {
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
    for (int part = 0; part < threads; ++part) {
      const int64_t begin = kWords * part / threads, end = kWords * (part + 1) / threads;
      sum += sum_of(memory.data() + begin, end - begin);
    }
  });
  return sum == 0 ? 0 : static_cast<double>(kWords * sizeof(int64_t)) / seconds;
}

}  // namespace tessera::kernels
