#include <cstring>

#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/require.h"
#include "tessera/kernels/cpu/move/strided_copy.h"
#include "tessera/kernels/registry.h"

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
  Layout layout{view.outer, line_bytes(node, whole.dtype, view.extent * view.inner), {}};
  int64_t offset = 0;
  for (const TensorDesc& part : parts) {
    if (!part.present()) fail("kernel", "{}: a part is missing", node.label());
    Dims expected = whole.dims;
    if (part.rank() == whole.rank()) expected[axis] = part.dims[axis];
    if (part.dims != expected) fail("kernel", "{}: the parts differ in more than axis {}", node.label(), axis);
    const int64_t bytes = line_bytes(node, whole.dtype, part.dims[axis] * view.inner);
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

std::unique_ptr<Kernel> prepare_transpose(const PrepareContext& context) {
  return written_out(context, transposed(context.node, view_of(context.inputs[0])));
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

/// Keeps columns j >= row + k (upper) or j <= row + k (lower) and zeroes the rest; k may come from data.
std::unique_ptr<Kernel> prepare_trilu(const PrepareContext& context) {
  const TensorDesc& result = context.outputs[0];
  if (result.rank() < 2) fail("kernel", "{}: the operand must have two dimensions or more", context.node.label());
  const int64_t rows = result.dims[result.rank() - 2], columns = result.dims[result.rank() - 1];
  const bool upper = context.node.get_int("upper", 1) != 0, has_k = context.has_input(1);
  require_scalar(context, 1, "k", DType::int64);
  const int64_t lines = columns == 0 ? 0 : result.count() / columns;
  return dispatch_size(context.node, result.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=, threads = context.threads](const KernelArgs& args) {
      // Beyond the matrix all k have the same effect; bounding k keeps the sums below from overflowing.
      const int64_t k = has_k ? std::clamp(*args.in<int64_t>(1), -rows - 1, columns + 1) : 0;
      const T* in = args.in<T>(0);
      T* out = args.out<T>();
      for_ranges(lines, lines * columns, threads, [&](int64_t begin, int64_t end) {
        for (int64_t line = begin; line < end; ++line) {
          const int64_t row = line % rows;
          const int64_t from = upper ? std::clamp<int64_t>(row + k, 0, columns) : 0;
          const int64_t to = upper ? columns : std::clamp<int64_t>(row + k + 1, 0, columns);
          const T* source = in + line * columns;
          T* target = out + line * columns;
          std::fill(target, target + from, T(0));
          if (to > from) std::memmove(target + from, source + from, static_cast<size_t>(to - from) * sizeof(T));
          std::fill(target + to, target + columns, T(0));
        }
      });
    });
  });
}

}  // namespace

std::vector<KernelEntry> movement_kernels() {
  return {
      {.op_type = "Transpose", .domain = "", .prepare = prepare_transpose, .strided = {0}},
      {"Concat", "", prepare_concat, {}},
      {"Split", "", prepare_split, {}},
      {"DepthToSpace", "", prepare_depth_to_space, {}},
      {"SpaceToDepth", "", prepare_space_to_depth, {}},
      {"Trilu", "", prepare_trilu, {0}},
  };
}

}  // namespace tessera::kernels
