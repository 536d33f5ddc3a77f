#include <algorithm>
#include <cstring>

#include "tessera/kernels/cpu/move/strided_copy.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

std::unique_ptr<Kernel> prepare_copy(const PrepareContext& context) {
  const size_t bytes = context.outputs[0].bytes();
  if (context.inputs[0].bytes() != bytes)
    fail("kernel", "{}: the operand has {} bytes, the result {}", context.node.label(), context.inputs[0].bytes(),
         bytes);
  return make_kernel([bytes](const KernelArgs& args) {
    if (bytes > 0 && args.outputs[0] != args.inputs[0]) std::memcpy(args.outputs[0], args.inputs[0], bytes);
  });
}

std::unique_ptr<Kernel> prepare_expand(const PrepareContext& context) {
  return written_out(context, expanded(context.node, view_of(context.inputs[0]), context.outputs[0].dims));
}

std::unique_ptr<Kernel> prepare_shape(const PrepareContext& context) {
  const Dims& dims = context.inputs[0].dims;
  const int64_t rank = context.inputs[0].rank();
  auto place = [rank](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = place(context.node.get_int("start", 0)), end = place(context.node.get_int("end", rank));
  const Dims wanted(dims.begin() + start, dims.begin() + std::max(start, end));
  if (context.outputs[0].count() != static_cast<int64_t>(wanted.size()))
    fail("kernel", "{}: {} extents are declared, but there are {}", context.node.label(), context.outputs[0].count(),
         wanted.size());
  return make_kernel(
      [wanted](const KernelArgs& args) { std::copy(wanted.begin(), wanted.end(), args.out<int64_t>()); });
}

std::unique_ptr<Kernel> prepare_size(const PrepareContext& context) {
  return make_kernel([count = context.inputs[0].count()](const KernelArgs& args) { *args.out<int64_t>() = count; });
}

}  // namespace

std::vector<KernelEntry> shape_kernels() {
  std::vector<KernelEntry> entries = {
      {.op_type = "Expand", .domain = "", .prepare = prepare_expand, .strided = {0}},
      {"Shape", "", prepare_shape, {}},
      {"Size", "", prepare_size, {}},
  };
  // Views: if a result must be in memory of its own, their kernel runs and copies.
  for (std::string_view view : {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
    entries.push_back({view, "", prepare_copy, {0}, true});
  return entries;
}

}  // namespace tessera::kernels
