#include <cstring>
#include <numeric>

#include "tessera/base/checked.h"
#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/require.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/move/strided_copy.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

constexpr int64_t outside = -1;

/// The position of the operand's element for position `at` of the result; `outside` for the constant.
int64_t source_of(const std::string& mode, int64_t at, int64_t extent) {
  if (at >= 0 && at < extent) return at;
  if (mode == "constant") return outside;
  if (mode == "edge") return std::clamp<int64_t>(at, 0, extent - 1);
  if (mode == "wrap") return (at % extent + extent) % extent;
  const int64_t period = std::max<int64_t>(1, 2 * (extent - 1));  // reflect: 0 1 2 1 0 1 …
  const int64_t folded = (at % period + period) % period;
  return std::min(folded, period - folded) % extent;
}

/// One dimension of the result: the number of elements added before the (possibly cropped) operand's.
struct PaddedDim {
  int64_t extent = 0, added = 0, cropped = 0, body = 0;
  int64_t stride = 0;   ///< of the operand
  size_t table_at = 0;  ///< in scratch memory: the operand position of each result position
};

/// Pads (or, where negative, crops, which comes first) by one table of source positions per dimension.
struct Padding {
  std::string mode;
  std::vector<PaddedDim> dims;
  size_t scratch_bytes = 0;

  const int64_t* table(size_t d, void* scratch) const { return scratch_at<int64_t>(scratch, dims[d].table_at); }

  void fill_tables(void* scratch) const {
    for (const PaddedDim& dim : dims) {
      auto* table = scratch_at<int64_t>(scratch, dim.table_at);
      for (int64_t i = 0; i < dim.extent; ++i) {
        const int64_t from = source_of(mode, i - dim.added, dim.body);
        table[i] = from == outside ? outside : from + dim.cropped;
      }
    }
  }
};

template <typename T>
void pad_row(const PaddedDim& dim, const int64_t* source, const T* in, T* out, T constant) {
  auto one_by_one = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = source[i] == outside ? constant : in[source[i]];
  };
  // Result positions that copy consecutive operand elements.
  const int64_t body_begin = std::min(dim.added, dim.extent), body_end = std::min(dim.added + dim.body, dim.extent);
  one_by_one(0, body_begin);
  if (body_end > body_begin)
    std::memcpy(out + body_begin, in + source[body_begin], static_cast<size_t>(body_end - body_begin) * sizeof(T));
  one_by_one(body_end, dim.extent);
}

template <typename T>
void pad(const Padding& padding, const T* in, T* out, T constant, void* scratch, int threads) {
  padding.fill_tables(scratch);
  const size_t last = padding.dims.size() - 1;
  const int64_t row = padding.dims[last].extent;
  int64_t rows = 1;
  for (size_t d = 0; d < last; ++d) rows *= padding.dims[d].extent;
  for_ranges(row == 0 ? 0 : rows, rows * row, threads, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      int64_t rest = at, offset = 0;
      bool inside = true;
      for (size_t d = last; d-- > 0;) {
        const PaddedDim& dim = padding.dims[d];
        const int64_t source = padding.table(d, scratch)[rest % dim.extent];
        rest /= dim.extent;
        inside = inside && source != outside;
        offset += source * dim.stride;
      }
      if (inside)
        pad_row(padding.dims[last], padding.table(last, scratch), in + offset, out + at * row, constant);
      else
        std::fill(out + at * row, out + (at + 1) * row, constant);
    }
  });
}

std::unique_ptr<Kernel> prepare_pad(const PrepareContext& context) {
  const Node& node = context.node;
  Dims in = context.inputs[0].dims, out = context.outputs[0].dims;
  const std::string mode = node.get_string("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    fail("kernel", "{}: the mode is '{}'; it must be constant, edge, reflect or wrap", node.label(), mode);
  const std::vector<int64_t> pads = context.known_ints(1);
  std::vector<int64_t> axes(in.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (context.has_input(3)) axes = context.known_ints(3);
  if (pads.size() != 2 * axes.size())
    fail("kernel", "{}: {} pads for {} axes; each needs two", node.label(), pads.size(), axes.size());
  Dims before(in.size(), 0), after(in.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = resolve_axis(node, axes[i], context.inputs[0].rank());
    before[axis] = pads[i];
    after[axis] = pads[i + axes.size()];
  }
  Padding padding{mode, {}, 0};
  ScratchPlan scratch;
  if (in.empty()) in = out = {1}, before = after = {0};  // a scalar is a row of one
  const Dims strides = dense_strides(in);
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t cropped = std::max<int64_t>(0, -before[d]), added = std::max<int64_t>(0, before[d]);
    const auto widened = add_if_fits(in[d], before[d]);
    const auto extent = widened ? add_if_fits(*widened, after[d]) : std::nullopt;
    if (!extent || *extent < 0 || d >= out.size() || out[d] != *extent)
      fail("kernel", "{}: dimension {} of {} padded by {} and {} is not {}", node.label(), d, in[d], before[d],
           after[d], d < out.size() ? out[d] : -1);
    const int64_t body = std::max<int64_t>(0, in[d] - cropped - std::max<int64_t>(0, -after[d]));
    if (body == 0 && *extent > 0 && mode != "constant")
      fail("kernel", "{}: dimension {} is empty, so there is nothing to pad it with in mode '{}'", node.label(), d,
           mode);
    padding.dims.push_back(
        {*extent, added, cropped, body, strides[d], scratch.add(static_cast<size_t>(*extent) * sizeof(int64_t))});
  }
  padding.scratch_bytes = scratch.bytes();
  require_scalar(context, 2, "the constant", context.outputs[0].dtype);
  const bool has_constant = context.has_input(2);
  return dispatch_size(node, context.outputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    const size_t bytes = padding.scratch_bytes;
    return make_kernel(
        [padding = std::move(padding), has_constant, threads = context.threads](const KernelArgs& args) {
          pad(padding, args.in<T>(0), args.out<T>(), has_constant ? *args.in<T>(2) : T(0), args.scratch, threads);
        },
        bytes);
  });
}

std::unique_ptr<Kernel> prepare_slice(const PrepareContext& context) {
  Slices slices{context.known_ints(1), context.known_ints(2), {}, {}};
  if (context.has_input(3)) slices.axes = context.known_ints(3);
  if (context.has_input(4)) slices.steps = context.known_ints(4);
  return written_out(context, sliced(context.node, view_of(context.inputs[0]), slices));
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

}  // namespace

std::vector<KernelEntry> extent_kernels() {
  return {
      {.op_type = "Slice", .domain = "", .prepare = prepare_slice, .strided = {0}},
      {"Pad", "", prepare_pad, {}},
      {"Tile", "", prepare_tile, {}},
  };
}

}  // namespace tessera::kernels
