#include <fmt/ranges.h>

#include "tessera/base/error.h"
#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/fusions.h"
#include "tessera/kernels/library.h"

namespace tessera::kernels {
namespace {

bool is_plain(const Node& node, std::string_view op_type) {
  return node.domain.empty() && node.is(op_type);
}

std::optional<View> part_by(const Node& node, size_t index, const View& operand, const BoundValues& values) {
  const int64_t axis = resolve_axis(node, node.get_int("axis", 0), static_cast<int64_t>(operand.dims.size()));
  View view{values.type(node.outputs[index]).dims, operand.strides, operand.offset};
  int64_t end = 0;
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    if (!node.outputs[r]) return std::nullopt;
    if (r == index) view.offset += end * operand.strides[axis];
    end += values.type(node.outputs[r]).dims[axis];
  }
  if (end != operand.dims[axis]) return std::nullopt;  // the kernel reports the error
  return view;
}

std::optional<View> slice_by(const Node& node, const View& operand, const BoundValues& values) {
  Slices slices;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    auto ints = values.ints(node.inputs[i]);
    if (!ints) return std::nullopt;
    if (i == 1) slices.starts = std::move(*ints);
    if (i == 2) slices.ends = std::move(*ints);
    if (i == 3) slices.axes = std::move(ints);
    if (i == 4) slices.steps = std::move(ints);
  }
  return sliced(node, operand, slices);
}

// Checked here, since no kernel will run.
std::optional<View> reshape_by(const Node& node, const Value* result, const View& operand, const Dims& dims) {
  if (count_of(operand.dims) != count_of(dims))
    fail("bind", "{}: {} elements cannot take the shape {} = {}; check the input shapes", node.label(),
         count_of(operand.dims), to_string(result->shape()), fmt::join(dims, "x"));
  return reshaped(operand, dims);
}

}  // namespace

ViewKind view_kind(const Node& node) {
  const KernelEntry* entry = find_kernel(node.op_type, node.domain);
  if (!entry) return ViewKind::none;
  if (entry->view) return ViewKind::other;
  if (is_plain(node, "Transpose")) return ViewKind::permutation;
  return is_plain(node, "Split") || is_plain(node, "Slice") || is_plain(node, "Expand") ? ViewKind::other
                                                                                        : ViewKind::none;
}

std::optional<View> view_by(const Node& node, size_t index, const View& operand, const BoundValues& values) {
  const Value* result = node.outputs[index];
  if (!result) return std::nullopt;
  const Dims dims = values.type(result).dims;
  std::optional<View> view;
  if (is_plain(node, "Transpose"))
    view = transposed(node, operand);
  else if (is_plain(node, "Expand"))
    view = expanded(node, operand, dims);
  else if (is_plain(node, "Split"))
    view = part_by(node, index, operand, values);
  else if (is_plain(node, "Slice"))
    view = slice_by(node, operand, values);
  else
    view = reshape_by(node, result, operand, dims);
  if (view && view->dims != dims) return std::nullopt;  // the kernel reports the error
  return view;
}

}  // namespace tessera::kernels
