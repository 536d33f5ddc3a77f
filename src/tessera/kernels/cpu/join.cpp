#include <cstring>

#include "tessera/kernels/cpu/axes.h"
#include "tessera/kernels/cpu/movement.h"
#include "tessera/kernels/cpu/parallel.h"

namespace tessera::kernels {
namespace {

/// One part of a joined tensor: for each outer index, `bytes` consecutive bytes at `offset` of a line of the whole.
struct Part {
  int64_t offset = 0, bytes = 0;
};

struct Layout {
  int64_t outer = 0, line = 0;  ///< lines of the whole, and the bytes of one
  std::vector<Part> parts;
};

Layout lay_out(const PrepareContext& context, const TensorDesc& whole, const std::vector<TensorDesc>& parts) {
  const Node& node = context.node;
  const int64_t axis = resolve_axis(node, node.get_int("axis", 0), whole.rank());
  const AxisView view(whole.dims, axis);
  const int64_t element =
      dispatch_size(node, whole.dtype, []<typename T>() { return static_cast<int64_t>(sizeof(T)); });
  Layout layout{view.outer, view.extent * view.inner * element, {}};
  int64_t offset = 0;
  for (const TensorDesc& part : parts) {
    if (!part.present()) fail("kernel", "{}: every part must be there", node.label());
    Dims expected = whole.dims;
    if (part.rank() == whole.rank()) expected[axis] = part.dims[axis];
    if (part.dims != expected) fail("kernel", "{}: the parts differ in more than axis {}", node.label(), axis);
    const int64_t bytes = part.dims[axis] * view.inner * element;
    layout.parts.push_back({offset, bytes});
    offset += bytes;
  }
  if (offset != layout.line) fail("kernel", "{}: the parts do not add up along axis {}", node.label(), axis);
  return layout;
}

/// Calls move(part index, pointer offset in the whole, pointer offset in the part, bytes) for every piece.
template <typename Move>
void for_each_piece(const Layout& layout, int threads, Move&& move) {
  const int64_t parts = static_cast<int64_t>(layout.parts.size());
  for_ranges(layout.outer * parts, layout.outer * layout.line, threads, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t line = at / parts, part = at % parts;
      const auto [offset, bytes] = layout.parts[part];
      if (bytes > 0) move(part, line * layout.line + offset, line * bytes, bytes);
    }
  });
}

std::unique_ptr<Kernel> prepare_concat(const PrepareContext& context) {
  return make_kernel([layout = lay_out(context, context.outputs[0], context.inputs),
                      threads = context.threads](const KernelArgs& args) {
    std::byte* whole = args.out<std::byte>();
    for_each_piece(layout, threads, [&](int64_t part, int64_t in_whole, int64_t in_part, int64_t bytes) {
      std::memcpy(whole + in_whole, args.in<std::byte>(part) + in_part, static_cast<size_t>(bytes));
    });
  });
}

std::unique_ptr<Kernel> prepare_split(const PrepareContext& context) {
  // A result that nobody wants still takes its place: `split`, or an even division, gives its extent.
  std::vector<TensorDesc> parts = context.outputs;
  const TensorDesc& whole = context.inputs[0];
  const int64_t axis = resolve_axis(context.node, context.node.get_int("axis", 0), whole.rank());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].present()) continue;
    parts[i] = {whole.dtype, whole.dims};
    const int64_t count = static_cast<int64_t>(parts.size()), size = (whole.dims[axis] + count - 1) / count;
    const int64_t rest = std::max<int64_t>(0, whole.dims[axis] - static_cast<int64_t>(i) * size);
    parts[i].dims[axis] = context.has_input(1) ? context.known_ints(1).at(i) : std::min(size, rest);
  }
  return make_kernel([layout = lay_out(context, whole, parts), threads = context.threads](const KernelArgs& args) {
    const std::byte* whole = args.in<std::byte>(0);
    for_each_piece(layout, threads, [&](int64_t part, int64_t in_whole, int64_t in_part, int64_t bytes) {
      if (args.outputs[part])
        std::memcpy(args.out<std::byte>(part) + in_part, whole + in_whole, static_cast<size_t>(bytes));
    });
  });
}

}  // namespace

std::vector<KernelEntry> joining_kernels() {
  return {
      {"Concat", "", prepare_concat, {}},
      {"Split", "", prepare_split, {}},
  };
}

}  // namespace tessera::kernels
