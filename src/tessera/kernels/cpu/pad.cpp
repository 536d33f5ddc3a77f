#include <cstring>
#include <numeric>

#include "tessera/kernels/cpu/axes.h"
#include "tessera/kernels/cpu/movement.h"
#include "tessera/kernels/cpu/parallel.h"
#include "tessera/kernels/cpu/require.h"
#include "tessera/kernels/cpu/strided_copy.h"

namespace tessera::kernels {
namespace {

constexpr int64_t outside = -1;

/// Where position `at` of an operand dimension takes its element from; `outside` for the constant.
int64_t source_of(const std::string& mode, int64_t at, int64_t extent) {
  if (at >= 0 && at < extent) return at;
  if (mode == "constant") return outside;
  if (mode == "edge") return std::clamp<int64_t>(at, 0, extent - 1);
  if (mode == "wrap") return (at % extent + extent) % extent;
  const int64_t period = std::max<int64_t>(1, 2 * (extent - 1));  // reflect: 0 1 2 1 0 1 …
  const int64_t folded = (at % period + period) % period;
  return std::min(folded, period - folded) % extent;
}

/// Pads (or, where negative, crops, which comes first) by one table of source positions per dimension.
struct Padding {
  std::vector<std::vector<int64_t>> source;  ///< [dimension][result position]
  Dims strides;                              ///< of the operand
  int64_t body_begin = 0, body_end = 0;      ///< of a row: result positions that copy consecutive operand elements
};

template <typename T>
void pad_row(const Padding& padding, const T* in, T* out, T constant) {
  const std::vector<int64_t>& source = padding.source.back();
  const int64_t n = static_cast<int64_t>(source.size());
  auto one_by_one = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = source[i] == outside ? constant : in[source[i]];
  };
  one_by_one(0, padding.body_begin);
  if (padding.body_end > padding.body_begin)
    std::memcpy(out + padding.body_begin, in + source[padding.body_begin],
                static_cast<size_t>(padding.body_end - padding.body_begin) * sizeof(T));
  one_by_one(padding.body_end, n);
}

template <typename T>
void pad(const Padding& padding, const T* in, T* out, T constant, int threads) {
  const int rank = static_cast<int>(padding.source.size());
  const int64_t row = static_cast<int64_t>(padding.source.back().size());
  int64_t rows = 1;
  for (int d = 0; d + 1 < rank; ++d) rows *= static_cast<int64_t>(padding.source[d].size());
  for_ranges(row == 0 ? 0 : rows, rows * row, threads, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      int64_t rest = at, offset = 0;
      bool inside = true;
      for (int d = rank - 2; d >= 0; --d) {
        const int64_t extent = static_cast<int64_t>(padding.source[d].size());
        const int64_t source = padding.source[d][rest % extent];
        rest /= extent;
        inside = inside && source != outside;
        offset += source * padding.strides[d];
      }
      if (inside)
        pad_row(padding, in + offset, out + at * row, constant);
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
    fail("kernel", "{}: the mode '{}' is none of constant, edge, reflect, wrap", node.label(), mode);
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
  Padding padding;
  if (in.empty()) in = out = {1}, before = after = {0};  // a scalar is a row of one
  padding.strides = dense_strides(in);
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t extent = in[d] + before[d] + after[d];
    const int64_t cropped = std::max<int64_t>(0, -before[d]), added = std::max<int64_t>(0, before[d]);
    const int64_t body = std::max<int64_t>(0, in[d] - cropped - std::max<int64_t>(0, -after[d]));
    if (extent < 0 || d >= out.size() || out[d] != extent)
      fail("kernel", "{}: dimension {} of {} padded by {} and {} is not {}", node.label(), d, in[d], before[d],
           after[d], d < out.size() ? out[d] : -1);
    if (body == 0 && extent > 0 && mode != "constant")
      fail("kernel", "{}: dimension {} is empty, so there is nothing to pad it with in mode '{}'", node.label(), d,
           mode);
    std::vector<int64_t>& source = padding.source.emplace_back(extent);
    for (int64_t i = 0; i < extent; ++i) {
      const int64_t from = source_of(mode, i - added, body);
      source[i] = from == outside ? outside : from + cropped;
    }
    padding.body_begin = std::min(added, extent);  // of the last dimension in the end
    padding.body_end = std::min(added + body, extent);
  }
  require_scalar(context, 2, "the constant", context.outputs[0].dtype);
  const bool has_constant = context.has_input(2);
  return dispatch_size(node, context.outputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([padding = std::move(padding), has_constant, threads = context.threads](const KernelArgs& args) {
      pad(padding, args.in<T>(0), args.out<T>(), has_constant ? *args.in<T>(2) : T(0), threads);
    });
  });
}

}  // namespace

std::vector<KernelEntry> padding_kernels() {
  return {{"Pad", "", prepare_pad, {}}};
}

}  // namespace tessera::kernels
