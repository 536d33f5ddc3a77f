#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "tessera/kernels/cpu/axes.h"
#include "tessera/kernels/cpu/movement.h"
#include "tessera/kernels/cpu/strided_copy.h"

/// Operators whose result is a strided view of their operand, copied to dense memory.
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

/// Copies a view of operand 0 to the result.
std::unique_ptr<Kernel> written_out(const PrepareContext& context, const View& view) {
  check_extents(context, view.dims);
  return strided_kernel(context, StridedCopy(view));
}

std::unique_ptr<Kernel> prepare_transpose(const PrepareContext& context) {
  return written_out(context, transposed(context.node, view_of(context.inputs[0])));
}

std::unique_ptr<Kernel> prepare_expand(const PrepareContext& context) {
  return written_out(context, expanded(context.node, view_of(context.inputs[0]), context.outputs[0].dims));
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
  return strided_kernel(context, StridedCopy({view, strides}));
}

std::unique_ptr<Kernel> prepare_slice(const PrepareContext& context) {
  Slices slices{context.known_ints(1), context.known_ints(2), {}, {}};
  if (context.has_input(3)) slices.axes = context.known_ints(3);
  if (context.has_input(4)) slices.steps = context.known_ints(4);
  return written_out(context, sliced(context.node, view_of(context.inputs[0]), slices));
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
  const View view = mode == "DCR" ? permuted(View::dense({d[0], b, b, d[1] / (b * b), d[2], d[3]}), {0, 3, 4, 1, 5, 2})
                                  : permuted(View::dense({d[0], d[1] / (b * b), b, b, d[2], d[3]}), {0, 1, 4, 2, 5, 3});
  return strided_kernel(context, StridedCopy(view));
}

std::unique_ptr<Kernel> prepare_space_to_depth(const PrepareContext& context) {
  const Dims& d = context.inputs[0].dims;
  const int64_t b = context.node.get_int("blocksize", 0);
  if (d.size() != 4 || b < 1 || d[2] % b != 0 || d[3] % b != 0)
    fail("kernel", "{}: needs four dimensions, and a height and width that blocksize divides", context.node.label());
  check_extents(context, {d[0], d[1] * b * b, d[2] / b, d[3] / b});
  const View view = permuted(View::dense({d[0], d[1], d[2] / b, b, d[3] / b, b}), {0, 3, 5, 1, 2, 4});
  return strided_kernel(context, StridedCopy(view));
}

}  // namespace

std::vector<KernelEntry> rearranging_kernels() {
  std::vector<KernelEntry> entries = {
      {.op_type = "Transpose", .domain = "", .prepare = prepare_transpose, .strided = {0}},
      {.op_type = "Expand", .domain = "", .prepare = prepare_expand, .strided = {0}},
      {"Tile", "", prepare_tile, {}},
      {.op_type = "Slice", .domain = "", .prepare = prepare_slice, .strided = {0}},
      {"DepthToSpace", "", prepare_depth_to_space, {}},
      {"SpaceToDepth", "", prepare_space_to_depth, {}},
  };
  // Views: if a result must be in memory of its own, their kernel runs and copies.
  for (std::string_view view : {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
    entries.push_back({view, "", prepare_copy, {0}, true});
  return entries;
}

}  // namespace tessera::kernels
