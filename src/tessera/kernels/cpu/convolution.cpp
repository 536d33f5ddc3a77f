#include <array>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/adapted_primitive.h"
#include "tessera/kernels/cpu/convolution_layout.h"
#include "tessera/kernels/cpu/convolution_plain.h"
#include "tessera/kernels/cpu/dispatch.h"
#include "tessera/kernels/cpu/families.h"
#include "tessera/kernels/cpu/require.h"
#include "tessera/kernels/cpu/via_float32.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using onednn::AdaptedPrimitive;
using onednn::Md;

/// A kernel of oneDNN's x, weights, (bias,) y.
template <typename Operation>
std::unique_ptr<Kernel> primitive_kernel(const typename Operation::primitive_desc& desc, const Md& x, const Md& weights,
                                         const Md& bias, const Md& y, int threads) {
  const bool with_bias = bias.get_size() > 0;
  std::vector<AdaptedPrimitive::Argument> arguments{{DNNL_ARG_SRC, x, desc.src_desc()},
                                                    {DNNL_ARG_WEIGHTS, weights, desc.weights_desc()}};
  if (with_bias) arguments.push_back({DNNL_ARG_BIAS, bias, bias});
  arguments.push_back({DNNL_ARG_DST, y, desc.dst_desc()});
  auto primitive = std::make_shared<AdaptedPrimitive>(Operation(desc), desc.scratchpad_desc(), arguments, threads);
  return make_kernel(
      [=](const KernelArgs& args) {
        std::array<const void*, 4> addresses{args.inputs[0], args.inputs[1], args.outputs[0], nullptr};
        if (with_bias) addresses = {args.inputs[0], args.inputs[1], args.inputs[2], args.outputs[0]};
        primitive->run(std::span(addresses).first(with_bias ? 4 : 3), args.scratch);
      },
      primitive->scratch_bytes());
}

Md bias_layout(const PrepareContext& context) {
  return context.has_input(2) ? onednn::dense(context.inputs[2].dtype, context.inputs[2].dims) : Md();
}

bool is_empty(const PrepareContext& context, const TensorDesc& weight) {
  return context.inputs[0].count() == 0 || weight.count() == 0 || context.outputs[0].count() == 0;
}

template <auto Compute, typename T>
std::unique_ptr<Kernel> plain_kernel(const PlainConvolution& convolution, bool with_bias) {
  return make_kernel([=](const KernelArgs& args) {
    Compute(convolution, args.in<T>(0), args.in<T>(1), with_bias ? args.in<T>(2) : nullptr, args.out<T>());
  });
}

std::unique_ptr<Kernel> prepare_convolution(const PrepareContext& context) {
  const Node& node = context.node;
  const TensorDesc &x = context.inputs.at(0), &y = context.outputs.at(0);
  const bool packed = node.domain == "tessera.cpu";
  const TensorDesc weight = packed ? packed_weight_desc(node) : context.inputs.at(1);
  const ConvolutionShape shape = convolution_shape(node, x.dims, weight.dims, y.dims);
  require_dims(context, 2, "the bias", {weight.dims[0]});
  std::optional<WeightLayout> layout;
  if (packed) {
    layout = weight_layout(node, "Conv", weight);
    if (!layout || layout->bytes() != context.inputs[1].bytes())
      fail("kernel", "{}: its packed weight has {} bytes, which is not this machine's form; rewrite the program for it",
           node.label(), context.inputs[1].bytes());
  }
  if (packed ? x.dtype == layout->stored : onednn::is_native(x.dtype) && !is_empty(context, weight)) {
    if (y.count() == 0) return make_kernel([](const KernelArgs&) {});
    onednn::TeamScope team(context.threads);
    const Md given = packed ? layout->packed : onednn::dense(weight.dtype, shape.weights);
    const Md any_x = onednn::any_layout(x.dtype, shape.x), any_y = onednn::any_layout(y.dtype, shape.y);
    const Md bias = bias_layout(context);
    const onednn::Windows windows = shape.onednn_windows();
    std::optional<dnnl::convolution_forward::primitive_desc> desc;
    if (packed) desc = onednn::convolution(any_x, given, bias, any_y, windows);
    if (!desc) desc = onednn::convolution(any_x, onednn::any_layout(x.dtype, shape.weights), bias, any_y, windows);
    if (desc)
      return primitive_kernel<dnnl::convolution_forward>(*desc, onednn::dense(x.dtype, shape.x), given, bias,
                                                         onednn::dense(y.dtype, shape.y), context.threads);
  }
  if (x.dtype == DType::bfloat16 || x.dtype == DType::float16) return via_float32(context, prepare_convolution);
  if (packed)
    fail("kernel", "{}: this convolution does not run on packed weights; load the program anew", node.label());
  return dispatch(Types<float, double>(), node, x.dtype, [&]<typename T>() {
    const int64_t group = node.get_int("group", 1);
    const PlainConvolution convolution{
        spatial_loop(node, shape.windows, std::span(x.dims).subspan(2), std::span(y.dims).subspan(2)),
        x.dims[0],
        group,
        weight.dims[1],
        weight.dims[0] / group,
        context.threads};
    return plain_kernel<plain_convolution<T>, T>(convolution, context.has_input(2));
  });
}

/// A ConvTranspose's windows: those of the convolution from y to x. Where the node gives the result's extents, the
/// padding follows from them (ONNX's ConvTranspose, the equations of `output_shape`).
WindowGeometry transposed_windows(const Node& node, const Dims& x, const Dims& kernel, const Dims& y) {
  const std::string auto_pad = node.get_string("auto_pad", "NOTSET");
  Node plain = node;
  if (auto_pad != "NOTSET") plain.set("auto_pad", std::string("VALID"));
  WindowGeometry windows = window_geometry(plain, Dims(y.begin() + 2, y.end()), kernel);
  const bool derived = !node.get_ints("output_shape").empty() || auto_pad.starts_with("SAME");
  Dims output_padding = node.get_ints("output_padding");
  output_padding.resize(kernel.size(), 0);
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t span = windows.strides[i] * (x[i + 2] - 1) + windows.span(i), extent = y[i + 2];
    if (derived) {
      // A result larger than what x reaches begins where x does; the rest is at its end.
      const int64_t total = std::max<int64_t>(span + output_padding[i] - extent, 0);
      windows.pads_begin[i] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
    windows.pads_end[i] = span - extent - windows.pads_begin[i];
  }
  return windows;
}

std::unique_ptr<Kernel> prepare_transposed_convolution(const PrepareContext& context) {
  const Node& node = context.node;
  const TensorDesc &x = context.inputs.at(0), &weight = context.inputs.at(1), &y = context.outputs.at(0);
  const int64_t group = node.get_int("group", 1);
  if (x.rank() < 3 || weight.rank() != x.rank() || y.rank() != x.rank() || group < 1 || weight.dims[0] != x.dims[1] ||
      x.dims[1] % group != 0 || weight.dims[1] * group != y.dims[1] || y.dims[0] != x.dims[0])
    fail("kernel", "{}: input, weight and group {} do not fit; the weight is [in, out/group, kernel...]", node.label(),
         group);
  require_dims(context, 2, "the bias", {y.dims[1]});
  const Dims kernel(weight.dims.begin() + 2, weight.dims.end());
  const WindowGeometry windows = transposed_windows(node, x.dims, kernel, y.dims);
  const int64_t in = weight.dims[0] / group, out = weight.dims[1];
  if (onednn::is_native(x.dtype) && !is_empty(context, weight)) {
    onednn::TeamScope team(context.threads);
    // oneDNN's weights are [group, out, in, kernel...]; ours are the same elements with out and in exchanged.
    Dims extents{out, in}, strides{count_of(kernel), out * count_of(kernel)};
    if (group > 1) {
      extents.insert(extents.begin(), group);
      strides.insert(strides.begin(), in * out * count_of(kernel));
    }
    for (size_t i = 0; i < kernel.size(); ++i) {
      extents.push_back(kernel[i]);
      strides.push_back(count_of(std::span(kernel).subspan(i + 1)));
    }
    auto desc = onednn::deconvolution(onednn::any_layout(x.dtype, x.dims), onednn::any_layout(x.dtype, extents),
                                      bias_layout(context), onednn::any_layout(y.dtype, y.dims),
                                      {windows.strides, windows.dilations, windows.pads_begin, windows.pads_end});
    if (desc)
      return primitive_kernel<dnnl::deconvolution_forward>(
          *desc, onednn::dense(x.dtype, x.dims), onednn::strided(x.dtype, extents, strides), bias_layout(context),
          onednn::dense(y.dtype, y.dims), context.threads);
  }
  if (x.dtype == DType::bfloat16 || x.dtype == DType::float16)
    return via_float32(context, prepare_transposed_convolution);
  return dispatch(Types<float, double>(), node, x.dtype, [&]<typename T>() {
    const PlainConvolution convolution{
        spatial_loop(node, windows, std::span(y.dims).subspan(2), std::span(x.dims).subspan(2)),
        x.dims[0],
        group,
        in,
        out,
        context.threads};
    return plain_kernel<plain_transposed_convolution<T>, T>(convolution, context.has_input(2));
  });
}

/// The local forms, of our domain: with float32 sums of 16-bit operands; and with group = 0 where groups are split
/// unevenly, so that their number differs between ranks: channels / channels of a group say it.
template <auto Prepare>
std::unique_ptr<Kernel> prepare_local(const PrepareContext& context) {
  Node node = context.node;
  node.domain = "";
  if (node.get_int("group", 1) == 0) {
    if (context.outputs.at(0).count() == 0) return make_kernel([](const KernelArgs&) {});
    const TensorDesc& weight = context.inputs.at(1);
    const TensorDesc& grouped = node.op_type == "Conv" ? context.inputs.at(0) : context.outputs.at(0);
    const int64_t each = weight.rank() > 1 ? weight.dims[1] : 0, channels = grouped.rank() > 1 ? grouped.dims[1] : 0;
    // Without channels there is nothing to add up, whatever the groups are: zeros, or the bias.
    const bool nothing = each == 0 && channels == 0;
    if (!nothing && (each < 1 || channels % each != 0))
      fail("kernel", "{}: {} channels do not divide into groups of {}", node.label(), channels, each);
    node.set("group", nothing ? int64_t{1} : channels / each);
  }
  return Prepare({node, context.inputs, context.outputs, context.known, context.threads});
}

}  // namespace

std::vector<KernelEntry> convolution_kernels() {
  std::vector<KernelEntry> entries{
      {"Conv", "", prepare_convolution, {}},
      {"PackedConv", "tessera.cpu", prepare_convolution, {}},
      {"ConvTranspose", "", prepare_transposed_convolution, {}},
      {"Conv", "tessera", prepare_local<prepare_convolution>, {}},
      {"ConvTranspose", "tessera", prepare_local<prepare_transposed_convolution>, {}},
  };
  for (auto family : {pooling_kernels, batch_normalization_kernels})
    for (KernelEntry& entry : family()) entries.push_back(std::move(entry));
  return entries;
}

}  // namespace tessera::kernels
