#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "tessera/kernels/cpu/axes.h"
#include "tessera/kernels/cpu/movement.h"
#include "tessera/kernels/cpu/strided_copy.h"

/// Operators whose result is a strided view of their operand, written out.
namespace tessera::kernels {
namespace {

void check_extents(const PrepareContext& context, const Dims& expected) {
  if (context.outputs[0].dims != expected)
    fail("kernel", "{}: a result of [{}] is asked for, but the operands make [{}]", context.node.label(),
         fmt::join(context.outputs[0].dims, ", "), fmt::join(expected, ", "));
}

std::unique_ptr<Kernel> prepare_copy(const PrepareContext& context) {
  const size_t bytes = context.outputs[0].bytes();
  if (context.inputs[0].bytes() != bytes)
    fail("kernel", "{}: the operand has {} bytes, the result {}", context.node.label(), context.inputs[0].bytes(),
         bytes);
  return make_kernel([bytes](const KernelArgs& args) {
    if (bytes > 0 && args.outputs[0] != args.inputs[0]) std::memcpy(args.outputs[0], args.inputs[0], bytes);
  });
}

StridedCopy permuted(const Dims& dims, const std::vector<int64_t>& permutation) {
  const Dims strides = dense_strides(dims);
  Dims result, result_strides;
  for (int64_t axis : permutation) {
    result.push_back(dims[axis]);
    result_strides.push_back(strides[axis]);
  }
  return StridedCopy(result, result_strides);
}

std::unique_ptr<Kernel> prepare_transpose(const PrepareContext& context) {
  const Dims& dims = context.inputs[0].dims;
  std::vector<int64_t> permutation(dims.size());
  std::iota(permutation.rbegin(), permutation.rend(), 0);
  permutation = context.node.get_ints("perm", permutation);
  std::vector<bool> seen(dims.size(), false);
  bool valid = permutation.size() == dims.size();
  for (int64_t& axis : permutation) {
    axis = resolve_axis(context.node, axis, context.inputs[0].rank());
    valid = valid && !seen[axis];
    seen[axis] = true;
  }
  if (!valid)
    fail("kernel", "{}: perm [{}] does not name each of {} dimensions once", context.node.label(),
         fmt::join(permutation, ", "), dims.size());
  Dims expected;
  for (int64_t axis : permutation) expected.push_back(dims[axis]);
  check_extents(context, expected);
  return strided_kernel(context, permuted(dims, permutation));
}

std::unique_ptr<Kernel> prepare_expand(const PrepareContext& context) {
  const Dims& from = context.inputs[0].dims;
  const Dims& to = context.outputs[0].dims;
  const Dims dense = dense_strides(from);
  Dims strides(to.size(), 0);
  bool fits = from.size() <= to.size();
  for (size_t i = 0; fits && i < from.size(); ++i) {
    const size_t own = from.size() - 1 - i, at = to.size() - 1 - i;
    fits = from[own] == to[at] || from[own] == 1;
    if (from[own] != 1) strides[at] = dense[own];
  }
  if (!fits)
    fail("kernel", "{}: [{}] does not expand to [{}]", context.node.label(), fmt::join(from, ", "),
         fmt::join(to, ", "));
  return strided_kernel(context, StridedCopy(to, strides));
}

std::unique_ptr<Kernel> prepare_tile(const PrepareContext& context) {
  const Dims& dims = context.inputs[0].dims;
  const std::vector<int64_t> repeats = context.known_ints(1);
  if (repeats.size() != dims.size())
    fail("kernel", "{}: {} repeats for {} dimensions", context.node.label(), repeats.size(), dims.size());
  const Dims dense = dense_strides(dims);
  Dims expected, view, strides;
  for (size_t d = 0; d < dims.size(); ++d) {
    expected.push_back(repeats[d] * dims[d]);
    view.insert(view.end(), {repeats[d], dims[d]});
    strides.insert(strides.end(), {0, dense[d]});
  }
  check_extents(context, expected);
  return strided_kernel(context, StridedCopy(view, strides));
}

std::unique_ptr<Kernel> prepare_slice(const PrepareContext& context) {
  Dims dims = context.inputs[0].dims;
  Dims strides = dense_strides(dims);
  const std::vector<int64_t> starts = context.known_ints(1), ends = context.known_ints(2);
  std::vector<int64_t> axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (context.has_input(3)) axes = context.known_ints(3);
  if (context.has_input(4)) steps = context.known_ints(4);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    fail("kernel", "{}: {} starts, {} ends, {} axes and {} steps; they must be as many", context.node.label(),
         starts.size(), ends.size(), axes.size(), steps.size());
  int64_t offset = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = resolve_axis(context.node, axes[i], context.inputs[0].rank());
    const int64_t extent = context.inputs[0].dims[axis], step = steps[i];
    if (step == 0) fail("kernel", "{}: a step of zero along axis {}", context.node.label(), axis);
    // Positions go from 0 to extent, or downwards from extent - 1 to -1.
    const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? extent : extent - 1;
    auto place = [&](int64_t position, int64_t low) {
      return std::clamp(position < 0 ? position + extent : position, low, std::max(low, highest));
    };
    const int64_t start = place(starts[i], 0);
    const int64_t end = place(ends[i], lowest);
    const int64_t distance = step > 0 ? end - start : start - end;
    const int64_t stride_length = step > 0 ? step : -std::max(step, -std::numeric_limits<int64_t>::max());
    dims[axis] = extent == 0 || distance <= 0 ? 0 : (distance - 1) / stride_length + 1;
    if (dims[axis] == 0) continue;
    offset += start * strides[axis];
    strides[axis] *= dims[axis] == 1 ? 1 : step;
  }
  check_extents(context, dims);
  return strided_kernel(context, StridedCopy(dims, strides, offset));
}

/// [n, c, h, w] seen as six dimensions, `b` being the block size.
std::unique_ptr<Kernel> prepare_depth_to_space(const PrepareContext& context) {
  const Dims& d = context.inputs[0].dims;
  const int64_t b = context.node.get_int("blocksize", 0);
  const std::string mode = context.node.get_string("mode", "DCR");
  if (d.size() != 4 || b < 1 || d[1] % (b * b) != 0 || (mode != "DCR" && mode != "CRD"))
    fail("kernel", "{}: needs four dimensions, channels that blocksize² divides, and the mode DCR or CRD",
         context.node.label());
  check_extents(context, {d[0], d[1] / (b * b), d[2] * b, d[3] * b});
  if (mode == "DCR")
    return strided_kernel(context, permuted({d[0], b, b, d[1] / (b * b), d[2], d[3]}, {0, 3, 4, 1, 5, 2}));
  return strided_kernel(context, permuted({d[0], d[1] / (b * b), b, b, d[2], d[3]}, {0, 1, 4, 2, 5, 3}));
}

std::unique_ptr<Kernel> prepare_space_to_depth(const PrepareContext& context) {
  const Dims& d = context.inputs[0].dims;
  const int64_t b = context.node.get_int("blocksize", 0);
  if (d.size() != 4 || b < 1 || d[2] % b != 0 || d[3] % b != 0)
    fail("kernel", "{}: needs four dimensions, and a height and width that blocksize divides", context.node.label());
  check_extents(context, {d[0], d[1] * b * b, d[2] / b, d[3] / b});
  return strided_kernel(context, permuted({d[0], d[1], d[2] / b, b, d[3] / b, b}, {0, 3, 5, 1, 2, 4}));
}

}  // namespace

std::vector<KernelEntry> rearranging_kernels() {
  std::vector<KernelEntry> entries = {
      {"Transpose", "", prepare_transpose, {}},
      {"Expand", "", prepare_expand, {}},
      {"Tile", "", prepare_tile, {}},
      {"Slice", "", prepare_slice, {}},
      {"DepthToSpace", "", prepare_depth_to_space, {}},
      {"SpaceToDepth", "", prepare_space_to_depth, {}},
  };
  // Views: who must have the result in memory of its own runs their kernel, which copies.
  for (std::string_view view : {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
    entries.push_back({view, "", prepare_copy, {0}, true});
  return entries;
}

}  // namespace tessera::kernels
