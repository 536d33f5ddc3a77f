#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ir/tensor.h"
#include "tessera/kernels/packing.h"
#include "tessera/kernels/view.h"

namespace tessera::kernels {

using Attributes = std::map<std::string, AttributeValue>;

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// Settings beyond operands and results: `RunOptions{.attributes = {{"axis", int64_t{1}}}}`.
struct RunOptions {
  Attributes attributes;
  std::string domain = "";
  /// Whether prepare() sees the operands' elements (as for constants) or only their extents.
  bool known = true;
  /// The first result is written over this operand; -1 for memory of its own. Must be allowed by the registration.
  int in_place = -1;
  int threads = 1;
  /// How the kernel sees operands, by their number, or the first result (-1), in the memory of the given tensors.
  std::map<int, View> views = {};
};

/// Prepares the CPU kernel of `op_type` for one node and runs it: operands (dtype undefined: left out) in, results of
/// the given types out. Results start filled with the byte 0xAB, so that what a kernel forgets to write shows.
std::vector<Tensor> run_kernel(const std::string& op_type, const std::vector<Tensor>& inputs,
                               const std::vector<std::pair<DType, Dims>>& outputs, const RunOptions& options = {});

/// The same for one result.
Tensor run_kernel_one(const std::string& op_type, const std::vector<Tensor>& inputs, DType dtype, Dims dims,
                      const RunOptions& options = {});

/// A weight, with the operands that are packed with it.
Tensor packed_weight(const PackedLayout& layout, const std::vector<Tensor>& operands);

/// The node's operand 1, and what goes with it, packed as a rank's plan has it; then the packed form's result.
Tensor run_packed_product(const std::string& op_type, const std::string& domain, std::vector<Tensor> inputs,
                          DType dtype, Dims dims, const Attributes& attributes = {}, int threads = 1);

inline Tensor floats(Dims dims, const std::vector<float>& values) {
  return Tensor::of(DType::float32, std::move(dims), values);
}
inline Tensor ints(Dims dims, const std::vector<int64_t>& values) {
  return Tensor::of(DType::int64, std::move(dims), values);
}
Tensor booleans(Dims dims, const std::vector<int>& values);
/// float32 values rounded to bfloat16 or float16, and back.
Tensor narrowed(DType dtype, Dims dims, const std::vector<float>& values);
std::vector<float> widened(const Tensor& tensor);

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  auto span = tensor.as<T>();
  return {span.begin(), span.end()};
}

}  // namespace tessera::kernels
