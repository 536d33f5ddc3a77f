#include "tessera/kernels/cpu/image/pooling.h"

#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/image/channel_blocks.h"
#include "tessera/kernels/cpu/image/channels_last.h"
#include "tessera/kernels/cpu/image/windows.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

struct Pooling {
  SpatialLoop loop;
  int64_t planes;  ///< batch · channels
  int threads;
};

Pooling pooling_of(const PrepareContext& context) {
  const Node& node = context.node;
  const Dims &x = context.inputs.at(0).dims, &y = context.outputs.at(0).dims;
  const Dims kernel = node.get_ints("kernel_shape");
  if (x.size() < 3 || kernel.size() + 2 != x.size() || y.size() != x.size())
    fail("kernel", "{}: kernel_shape {} does not fit an input of extents {}", node.label(), text_of(kernel),
         text_of(x));
  const auto in = std::span(x).subspan(2), out = std::span(y).subspan(2);
  const WindowGeometry windows = window_geometry(node, Dims(in.begin(), in.end()), kernel);
  return {spatial_loop(node, windows, in, out), x[0] * x[1], context.threads};
}

/// The flat index of an input plane's element for `Indices`: column-major within the plane on request.
struct IndexOrder {
  std::array<int64_t, 3> strides;

  IndexOrder(const SpatialLoop& loop, bool column_major)
      : strides(column_major ? std::array<int64_t, 3>{1, loop.in[0], loop.in[0] * loop.in[1]}
                             : std::array<int64_t, 3>{loop.in[1] * loop.in[2], loop.in[2], 1}) {}
};

/// Calls visit(ranges of the three dimensions, p0, p1, p2) for each window of a plane, in row-major order.
template <typename Visit>
void for_windows(const SpatialLoop& loop, Visit visit) {
  for (int64_t p0 = 0; p0 < loop.out[0]; ++p0) {
    const WindowRange r0 = loop.range(0, p0);
    for (int64_t p1 = 0; p1 < loop.out[1]; ++p1) {
      const WindowRange r1 = loop.range(1, p1);
      for (int64_t p2 = 0; p2 < loop.out[2]; ++p2) visit(r0, r1, loop.range(2, p2), std::array{p0, p1, p2});
    }
  }
}

/// Calls visit(plane element's coordinates) for each element inside a window, in row-major order.
template <typename Visit>
void for_elements(const SpatialLoop& loop, const WindowRange& r0, const WindowRange& r1, const WindowRange& r2,
                  Visit visit) {
  for (int64_t k0 = r0.begin, at0 = r0.first; k0 < r0.end; ++k0, at0 += loop.dilation[0])
    for (int64_t k1 = r1.begin, at1 = r1.first; k1 < r1.end; ++k1, at1 += loop.dilation[1])
      for (int64_t k2 = r2.begin, at2 = r2.first; k2 < r2.end; ++k2, at2 += loop.dilation[2]) visit(at0, at1, at2);
}

template <typename C>
constexpr C lowest() {
  return std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::lowest();
}

/// Padding at the end such that the last window ends with it; elements beyond are not read.
Dims pads_read(const WindowGeometry& windows, const TensorDesc& x, const TensorDesc& y) {
  Dims pads;
  for (size_t i = 0; i < windows.rank(); ++i)
    pads.push_back((y.dims[i + 2] - 1) * windows.strides[i] + windows.kernel[i] - x.dims[i + 2] -
                   windows.pads_begin[i]);
  return pads;
}

/// oneDNN begins with the lowest number, but the maximum of -inf alone is -inf.
void restore_infinities(DType dtype, void* y, int64_t count) {
  constexpr float lowest = std::numeric_limits<float>::lowest(), infinity = std::numeric_limits<float>::infinity();
  if (dtype == DType::float32) {
    auto* values = static_cast<float*>(y);
    for (int64_t i = 0; i < count; ++i) values[i] = values[i] == lowest ? -infinity : values[i];
  } else {
    const uint16_t infinity_bits = dtype == DType::bfloat16 ? 0xff80 : 0xfc00, lowest_bits = infinity_bits - 1;
    auto* bits = static_cast<uint16_t*>(y);
    for (int64_t i = 0; i < count; ++i) bits[i] = bits[i] == lowest_bits ? infinity_bits : bits[i];
  }
}

/// oneDNN's pooling; null if library_pools() says that there is none, or if oneDNN has none after all.
std::unique_ptr<Kernel> library_pooling(const PrepareContext& context, dnnl::algorithm algorithm,
                                        const WindowGeometry& windows) {
  const TensorDesc &x = context.inputs[0], &y = context.outputs[0];
  const onednn::Windows padded{windows.strides, windows.dilations, windows.pads_begin, pads_read(windows, x, y)};
  onednn::TeamScope team(context.threads);
  const auto desc = onednn::pooling(algorithm, layout_of(x), layout_of(y), padded, windows.kernel);
  if (!desc) return nullptr;
  auto primitive = std::make_shared<onednn::Primitive>(
      dnnl::pooling_forward(*desc), desc->scratchpad_desc(),
      std::vector<onednn::Primitive::Argument>{{DNNL_ARG_SRC, layout_of(x)}, {DNNL_ARG_DST, layout_of(y)}},
      context.threads);
  const int64_t stored = count_of(y.stored_dims());
  return make_kernel(
      [primitive, dtype = y.dtype,
       maxima = algorithm == dnnl::algorithm::pooling_max ? stored : 0](const KernelArgs& args) {
        primitive->run(std::array<const void*, 2>{args.inputs[0], args.outputs[0]}, args.scratch);
        restore_infinities(dtype, args.outputs[0], maxima);
      },
      primitive->scratch_bytes());
}

WindowGeometry windows_of(const Node& node, const TensorDesc& x) {
  return window_geometry(node, Dims(x.dims.begin() + 2, x.dims.end()), node.get_ints("kernel_shape"));
}

std::unique_ptr<Kernel> library_pooling(const PrepareContext& context, dnnl::algorithm algorithm) {
  const Node& node = context.node;
  if (context.has_output(1) || !library_pools(node, context.inputs[0], context.outputs[0])) return nullptr;
  return library_pooling(context, algorithm, windows_of(node, context.inputs[0]));
}

template <typename T>
void max_pool(const Pooling& pooling, const IndexOrder& order, const T* x, T* y, int64_t* indices) {
  const SpatialLoop& loop = pooling.loop;
#pragma omp parallel for num_threads(team_for(pooling.planes* loop.in_count(), pooling.threads)) schedule(static)
  for (int64_t plane = 0; plane < pooling.planes; ++plane) {
    const T* input = x + plane * loop.in_count();
    int64_t to = plane * loop.out_count();
    for_windows(loop, [&](const WindowRange& r0, const WindowRange& r1, const WindowRange& r2, auto) {
      Compute<T> best = lowest<Compute<T>>();
      int64_t index = -1;
      for_elements(loop, r0, r1, r2, [&](int64_t at0, int64_t at1, int64_t at2) {
        const Compute<T> value = load(input[(at0 * loop.in[1] + at1) * loop.in[2] + at2]);
        if (index >= 0 && !(value > best) && value == value) return;  // a NaN wins, as in numpy's maximum
        if (best != best) return;
        best = value;
        index = at0 * order.strides[0] + at1 * order.strides[1] + at2 * order.strides[2];
      });
      y[to] = store<T>(best);
      if (indices) indices[to] = index < 0 ? -1 : plane * loop.in_count() + index;
      ++to;
    });
  }
}

/// The positions of a window along one dimension that count if padding counts: those within the padded extent, without
/// those that overhang it through ceil_mode.
int64_t padded_positions(const SpatialLoop& loop, int dim, int64_t position) {
  const int64_t start = position * loop.stride[dim] - loop.pad[dim];
  const int64_t last = loop.in[dim] + loop.pad_end[dim] - 1;
  return std::clamp<int64_t>((last - start) / loop.dilation[dim] + 1, 1, loop.kernel[dim]);
}

template <typename T>
void average_pool(const Pooling& pooling, bool count_padding, const T* x, T* y) {
  const SpatialLoop& loop = pooling.loop;
#pragma omp parallel for num_threads(team_for(pooling.planes* loop.in_count(), pooling.threads)) schedule(static)
  for (int64_t plane = 0; plane < pooling.planes; ++plane) {
    const T* input = x + plane * loop.in_count();
    T* result = y + plane * loop.out_count();
    for_windows(loop, [&](const WindowRange& r0, const WindowRange& r1, const WindowRange& r2,
                          const std::array<int64_t, 3>& at) {
      Compute<T> sum = 0;
      for_elements(loop, r0, r1, r2, [&](int64_t at0, int64_t at1, int64_t at2) {
        sum += load(input[(at0 * loop.in[1] + at1) * loop.in[2] + at2]);
      });
      int64_t count = (r0.end - r0.begin) * (r1.end - r1.begin) * (r2.end - r2.begin);
      if (count_padding)
        count = padded_positions(loop, 0, at[0]) * padded_positions(loop, 1, at[1]) * padded_positions(loop, 2, at[2]);
      *result++ = store<T>(count > 0 ? sum / static_cast<Compute<T>>(count) : Compute<T>{0});
    });
  }
}

/// (Σ |x|^p)^(1/p) over each window; padding adds nothing.
template <typename T>
void lp_pool(const Pooling& pooling, int64_t p, const T* x, T* y) {
  const SpatialLoop& loop = pooling.loop;
  const double power = static_cast<double>(p);
#pragma omp parallel for num_threads(team_for(pooling.planes* loop.in_count(), pooling.threads)) schedule(static)
  for (int64_t plane = 0; plane < pooling.planes; ++plane) {
    const T* input = x + plane * loop.in_count();
    T* result = y + plane * loop.out_count();
    for_windows(loop, [&](const WindowRange& r0, const WindowRange& r1, const WindowRange& r2, auto) {
      double sum = 0;
      for_elements(loop, r0, r1, r2, [&](int64_t at0, int64_t at1, int64_t at2) {
        sum +=
            std::pow(std::fabs(static_cast<double>(load(input[(at0 * loop.in[1] + at1) * loop.in[2] + at2]))), power);
      });
      *result++ = store<T>(static_cast<Compute<T>>(std::pow(sum, 1 / power)));
    });
  }
}

std::unique_ptr<Kernel> lp_pool_kernel(const PrepareContext& context, const Pooling& pooling) {
  const int64_t p = context.node.get_int("p", 2);
  if (p < 1) fail("kernel", "{}: p is {}; it must be at least 1", context.node.label(), p);
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    return make_kernel([=](const KernelArgs& args) { lp_pool(pooling, p, args.in<T>(0), args.out<T>()); });
  });
}

std::unique_ptr<Kernel> prepare_lp_pool(const PrepareContext& context) {
  return lp_pool_kernel(context, pooling_of(context));
}

std::unique_ptr<Kernel> prepare_max_pool(const PrepareContext& context) {
  const Pooling pooling = pooling_of(context);
  if (auto kernel = max_pool_channels_last(context)) return kernel;
  if (auto kernel = library_pooling(context, dnnl::algorithm::pooling_max)) return kernel;
  check(context.inputs[0].block == 0, "only operands of oneDNN are in blocks");
  const IndexOrder order(pooling.loop, context.node.get_int("storage_order", 0) != 0);
  return dispatch(FloatTypes() + Types<int8_t, uint8_t>(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    return make_kernel([=, with_indices = context.has_output(1)](const KernelArgs& args) {
      max_pool(pooling, order, args.in<T>(0), args.out<T>(), with_indices ? args.out<int64_t>(1) : nullptr);
    });
  });
}

std::unique_ptr<Kernel> prepare_average_pool(const PrepareContext& context) {
  const Pooling pooling = pooling_of(context);
  const bool count_padding = context.node.get_int("count_include_pad", 0) != 0;
  const auto algorithm =
      count_padding ? dnnl::algorithm::pooling_avg_include_padding : dnnl::algorithm::pooling_avg_exclude_padding;
  if (auto kernel = library_pooling(context, algorithm)) return kernel;
  check(context.inputs[0].block == 0, "only operands of oneDNN are in blocks");
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    return make_kernel(
        [=](const KernelArgs& args) { average_pool(pooling, count_padding, args.in<T>(0), args.out<T>()); });
  });
}

/// The local form of our domain: padding, which differs between ranks, is operand 1.
template <auto Prepare>
std::unique_ptr<Kernel> prepare_with_own_padding(const PrepareContext& context) {
  if (context.outputs.at(0).count() == 0) return make_kernel([](const KernelArgs&) {});
  Node node = context.node;
  node.domain = "";
  node.inputs.resize(1);
  const auto pads = context.known_ints(1);
  node.set("pads", Dims(pads.begin(), pads.end()));
  PrepareContext plain{node, context.inputs, context.outputs, context.known, context.threads};
  plain.inputs.resize(1);
  plain.known.resize(1);
  return Prepare(plain);
}

/// One window over all of a plane.
Pooling global_pooling(const PrepareContext& context) {
  const Dims& x = context.inputs.at(0).dims;
  if (x.size() < 2) fail("kernel", "{}: the input needs a batch and a channel dimension", context.node.label());
  Pooling pooling{{}, x[0] * x[1], context.threads};
  pooling.loop.in[2] = pooling.loop.kernel[2] = count_of(std::span(x).subspan(2));
  return pooling;
}

std::unique_ptr<Kernel> prepare_global_max_pool(const PrepareContext& context) {
  const Pooling pooling = global_pooling(context);
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    return make_kernel([=](const KernelArgs& args) {
      max_pool<T>(pooling, IndexOrder(pooling.loop, false), args.in<T>(0), args.out<T>(), nullptr);
    });
  });
}

std::unique_ptr<Kernel> prepare_global_average_pool(const PrepareContext& context) {
  if (context.inputs[0].block) {
    PrepareContext alike = context;
    alike.outputs[0].block = context.inputs[0].block;  // whole blocks of one element each have the layout of a row
    const Dims &x = context.inputs[0].dims, ones(x.size() - 2, 1), zeros(x.size() - 2, 0);
    auto kernel = library_pooling(alike, dnnl::algorithm::pooling_avg_exclude_padding,
                                  {Dims(x.begin() + 2, x.end()), ones, ones, zeros, zeros});
    check(kernel != nullptr, "only operands of oneDNN are in blocks");
    return kernel;
  }
  const Pooling pooling = global_pooling(context);
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    return make_kernel([=](const KernelArgs& args) { average_pool(pooling, false, args.in<T>(0), args.out<T>()); });
  });
}

std::unique_ptr<Kernel> prepare_global_lp_pool(const PrepareContext& context) {
  return lp_pool_kernel(context, global_pooling(context));
}

}  // namespace

bool library_pools(const Node& node, const TensorDesc& x, const TensorDesc& y) {
  if (!onednn::is_native(x.dtype) || x.count() == 0 || y.count() == 0 || x.rank() > 5) return false;
  const WindowGeometry windows = windows_of(node, x);
  const Dims ends = pads_read(windows, x, y);
  for (size_t i = 0; i < windows.rank(); ++i)
    if (windows.dilations[i] != 1 || windows.pads_begin[i] >= windows.kernel[i] || ends[i] >= windows.kernel[i] ||
        ends[i] > windows.pads_end[i])
      return false;
  return true;
}

std::vector<KernelEntry> pooling_kernels() {
  return {
      {"MaxPool", "", prepare_max_pool, {}, false, true},
      {"AveragePool", "", prepare_average_pool, {}, false, true},
      {"MaxPool", "tessera", prepare_with_own_padding<prepare_max_pool>, {}},
      {"AveragePool", "tessera", prepare_with_own_padding<prepare_average_pool>, {}},
      {"GlobalMaxPool", "", prepare_global_max_pool, {}},
      {"GlobalAveragePool", "", prepare_global_average_pool, {}, false, true},
      {"LpPool", "", prepare_lp_pool, {}},
      {"GlobalLpPool", "", prepare_global_lp_pool, {}},
  };
}

}  // namespace tessera::kernels
