#include "tessera/compiler/random_inputs.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>

#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/base/saturated.h"
#include "tessera/device/memory_limit.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {
namespace {

// How a value's elements are used, as far as it matters for choosing them.
class IndexBound {
 public:
  explicit IndexBound(const SymbolSizes& sizes) : sizes_(sizes) {}

  /// Rows of the smallest table that the elements of `value` index; nullopt if they index none.
  std::optional<int64_t> of(const Value* value) {
    follow(value);
    return bound_;
  }

 private:
  void follow(const Value* value) {
    if (!seen_.insert(value).second) return;
    for (const Use& use : value->uses) visit(*use.node, use.index);
  }

  void visit(const Node& node, size_t operand) {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (!op || !node.input(0) || !node.input(0)->has_shape()) return;
    if (op->indices)
      if (const ops::Indices indices = op->indices(node); indices.operand == operand) {
        for (const Expr& extent : indices.extents) limit(extent);
        return;
      }
    if (op->moves == ops::Moves::nothing || !ops::reads_elements(node, operand) || ops::reads_values(node, operand))
      return;
    for (const Value* result : node.outputs)
      if (result) follow(result);
  }

  void limit(const Expr& rows) {
    auto size = saturated(spmd::hinted(rows, sizes_));
    bound_ = bound_ ? std::min(*bound_, size) : size;
  }

  const SymbolSizes& sizes_;
  std::set<const Value*> seen_;
  std::optional<int64_t> bound_;
};

template <typename T>
Tensor filled(DType dtype, const Dims& dims, const std::function<T(int64_t)>& element) {
  std::vector<T> elements(static_cast<size_t>(count_of(dims)));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = element(static_cast<int64_t>(i));
  return Tensor::of(dtype, dims, elements);
}

class Maker {
 public:
  Maker(uint64_t seed, const SymbolSizes& sizes) : random_(seed), sizes_(sizes) {}

  Tensor make(const Value& input, const Dims& dims) {
    switch (input.dtype()) {
      case DType::float32:
        return normal<float>(input.dtype(), dims);
      case DType::float64:
        return normal<double>(input.dtype(), dims);
      case DType::float16:
        return normal<Float16>(input.dtype(), dims);
      case DType::bfloat16:
        return normal<BFloat16>(input.dtype(), dims);
      case DType::boolean:
        return filled<uint8_t>(input.dtype(), dims, [this](int64_t) { return static_cast<uint8_t>(below(2)); });
      case DType::int64:
        return whole<int64_t>(input, dims);
      case DType::int32:
        return whole<int32_t>(input, dims);
      case DType::int16:
        return whole<int16_t>(input, dims);
      case DType::int8:
        return whole<int8_t>(input, dims);
      case DType::uint64:
        return whole<uint64_t>(input, dims);
      case DType::uint32:
        return whole<uint32_t>(input, dims);
      case DType::uint16:
        return whole<uint16_t>(input, dims);
      case DType::uint8:
        return whole<uint8_t>(input, dims);
      default:
        fail("inputs", "there are no random values of type {} for input '{}'; give `inputs`", name_of(input.dtype()),
             input.name);
    }
  }

 private:
  int64_t below(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_); }

  template <typename T>
  Tensor normal(DType dtype, const Dims& dims) {
    constexpr size_t kDrawn = 16381;  // a prime, so that no rows, heads or shards are alike
    std::normal_distribution<float> normal;
    std::vector<T> elements(static_cast<size_t>(count_of(dims)));
    const auto repeated = elements.begin() + static_cast<ptrdiff_t>(std::min(kDrawn, elements.size()));
    std::generate(elements.begin(), repeated, [&] { return static_cast<T>(normal(random_)); });
    for (auto next = repeated; next != elements.end(); ++next) *next = *(next - static_cast<ptrdiff_t>(kDrawn));
    return Tensor::of(dtype, dims, elements);
  }

  template <typename T>
  Tensor whole(const Value& input, const Dims& dims) {
    auto rows = IndexBound(sizes_).of(&input);
    bool positions = input.name.find("position") != std::string::npos;
    bool mask = input.name.find("mask") != std::string::npos;
    int64_t last = dims.empty() ? 1 : std::max<int64_t>(dims.back(), 1);
    if (rows && *rows == 0 && count_of(dims) > 0)
      fail("inputs", "input '{}' indexes a table without rows; give `inputs`", input.name);
    return filled<T>(input.dtype(), dims, [&](int64_t i) -> T {
      if (positions) return static_cast<T>(rows ? std::min(i % last, *rows - 1) : i % last);
      if (rows) return static_cast<T>(below(std::min<int64_t>(*rows, std::numeric_limits<T>::max())));
      return static_cast<T>(mask ? 1 : below(2));
    });
  }

  std::mt19937_64 random_;
  const SymbolSizes& sizes_;
};

}  // namespace

Tensors random_inputs(const Graph& graph, const SymbolSizes& sizes, uint64_t seed, size_t memory_limit) {
  Maker maker(seed, sizes);
  Tensors inputs;
  const device::MemoryLimit limit(memory_limit);
  size_t bytes = 0;
  for (const Value* input : graph.inputs) {
    if (!input->has_shape())
      fail("inputs", "input '{}' has no declared shape for random values; give `inputs`", input->name);
    Dims dims;
    for (const Expr& extent : input->shape()) dims.push_back(extent.evaluate(sizes));
    require_countable(input->dtype(), dims, input->name);
    bytes = checked_add(bytes, bytes_of(input->dtype(), count_of(dims)), "the inputs");
    limit.require(bytes, input->name);
    inputs[input->name] = maker.make(*input, dims);
  }
  return inputs;
}

}  // namespace tessera::compiler
