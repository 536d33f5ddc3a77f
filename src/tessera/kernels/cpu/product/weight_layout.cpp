#include "tessera/kernels/cpu/product/weight_layout.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

namespace tessera::kernels {
namespace {

/// The number of rows for which a matrix weight's layout is chosen. Other numbers of rows read the same layout.
constexpr int64_t typical_rows = 128;

}  // namespace

DType stored_type(DType dtype) {
  if (dtype == DType::float16 || dtype == DType::bfloat16) return onednn::is_native(dtype) ? dtype : DType::float32;
  return dtype == DType::float32 ? dtype : DType::undefined;
}

namespace {

/// oneDNN's choice; finding it takes as long as a product of small matrices.
std::optional<WeightLayout> chosen_layout(DType dtype, const Dims& dims, bool transposed) {
  const DType stored = stored_type(dtype);
  if (stored == DType::undefined || dims.size() < 2 || count_of(dims) == 0) return std::nullopt;
  Dims extents(dims.end() - 2, dims.end());
  if (transposed) std::swap(extents[0], extents[1]);
  const int64_t k = extents[0], n = extents[1];
  Dims strides = transposed ? Dims{1, k} : Dims{n, 1}, a{typical_rows, k}, c{typical_rows, n};
  const int64_t batch = count_of(dims) / (k * n);
  if (batch > 1) {
    strides.insert(strides.begin(), k * n);
    for (Dims* with_batch : {&extents, &a, &c}) with_batch->insert(with_batch->begin(), batch);
  }
  onednn::TeamScope team(1);  // the layout must not depend on the caller
  auto desc =
      onednn::matmul(onednn::dense(stored, a), onednn::any_layout(stored, extents), {}, onednn::dense(stored, c));
  if (!desc) return std::nullopt;
  WeightLayout layout{stored, onednn::strided(stored, extents, strides), desc->weights_desc()};
  if (layout.packed == layout.plain && stored == dtype) return std::nullopt;
  return layout;
}

}  // namespace

std::optional<WeightLayout> matmul_weight_layout(DType dtype, const Dims& dims, bool transposed) {
  // The answer of this machine stays the same, and every plan asks for all weights.
  static std::mutex mutex;
  static auto& known = *new std::map<std::tuple<DType, Dims, bool>, std::optional<WeightLayout>>;
  const std::tuple asked(dtype, dims, transposed);
  {
    std::lock_guard lock(mutex);
    if (auto layout = known.find(asked); layout != known.end()) return layout->second;
  }
  // Ranks that ask at the same time find the same answer, and none waits for another.
  auto layout = chosen_layout(dtype, dims, transposed);
  std::lock_guard lock(mutex);
  return known.try_emplace(asked, std::move(layout)).first->second;
}

std::optional<WeightLayout> product_weight_layout(const Node& node, const TensorDesc& weight) {
  return matmul_weight_layout(weight.dtype, weight.dims, node.get_int("transB", 0) != 0);
}

}  // namespace tessera::kernels
