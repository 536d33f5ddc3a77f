#include <cstring>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/elementwise/followers.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/image/channel_blocks.h"
#include "tessera/kernels/cpu/image/convolution_layout.h"
#include "tessera/kernels/cpu/image/convolution_plain.h"
#include "tessera/kernels/cpu/library/adapted_primitive.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/require.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using onednn::AdaptedPrimitive;
using onednn::Md;

/// A kernel of oneDNN with x, weights, (bias,) (the followers' operands,) y.
class PrimitiveKernel : public Kernel {
 public:
  PrimitiveKernel(std::shared_ptr<AdaptedPrimitive> primitive, std::vector<int> operands, int held, size_t held_bytes)
      : primitive_(std::move(primitive)),
        operands_(std::move(operands)),
        addresses_(operands_.size() + 1),
        held_(held),
        held_bytes_(held_bytes) {}

  size_t scratch_bytes() const override { return primitive_->scratch_bytes(); }
  int in_place_operand() const override { return held_; }

  void run(const KernelArgs& args) override {
    for (size_t i = 0; i < operands_.size(); ++i) addresses_[i] = args.inputs[operands_[i]];
    addresses_.back() = args.outputs[0];
    if (held_ >= 0 && args.inputs[held_] != args.outputs[0])
      std::memcpy(args.outputs[0], args.inputs[held_], held_bytes_);
    primitive_->run(addresses_, args.scratch);
  }

 private:
  std::shared_ptr<AdaptedPrimitive> primitive_;
  std::vector<int> operands_;
  std::vector<const void*> addresses_;  // the operands', then the result's
  int held_;                            // the operand that is the previous content of the result's memory; -1: none
  size_t held_bytes_;
};

template <typename Operation>
std::unique_ptr<Kernel> primitive_kernel(const typename Operation::primitive_desc& desc, const Md& x, const Md& weights,
                                         const Md& bias, const Md& y, int threads,
                                         const std::vector<Follower>& followers = {},
                                         const std::vector<onednn::PostOp>& then = {}) {
  std::vector<AdaptedPrimitive::Argument> arguments{{DNNL_ARG_SRC, x, desc.src_desc()},
                                                    {DNNL_ARG_WEIGHTS, weights, desc.weights_desc()}};
  std::vector<int> operands{0, 1};
  if (bias.get_size() > 0) {
    arguments.push_back({DNNL_ARG_BIAS, bias, bias});
    operands.push_back(2);
  }
  int held = -1;
  for (size_t i = 0; i < then.size(); ++i) {
    if (then[i].held_by_result) held = followers[i].other();
    if (!then[i].binary()) continue;
    arguments.push_back({onednn::post_op_argument(i), then[i].operand, then[i].operand});
    operands.push_back(followers[i].other());
  }
  arguments.push_back({DNNL_ARG_DST, y, desc.dst_desc()});
  return std::make_unique<PrimitiveKernel>(
      std::make_shared<AdaptedPrimitive>(Operation(desc), desc.scratchpad_desc(), arguments, threads), operands, held,
      y.get_size());
}

/// A convolution that ends with `followers`; null if the library has none that reads the packed weight. A sum with
/// another tensor must come first: that tensor is the previous content of the result's memory, and the layouts must
/// agree.
std::unique_ptr<Kernel> convolution_with_followers(const PrepareContext& context, const ConvolutionShape& shape,
                                                   const Md& weight, const Md& bias) {
  const TensorDesc &x = context.inputs[0], &y = context.outputs[0];
  std::vector<onednn::PostOp> then = post_ops(context.followers, [&](int operand) {
    const TensorDesc& other = context.inputs[operand];
    if (other.dims == y.dims) return layout_of(other);
    Dims channels(y.dims.size(), 1);  // one value each
    channels[1] = other.count();
    return onednn::dense(other.dtype, channels);
  });
  for (size_t i = 0; i < then.size(); ++i) {
    const int operand = context.followers[i].other();
    if (operand < 0 || context.inputs[operand].dims != y.dims) continue;
    if (i > 0 || then[i].algorithm != dnnl::algorithm::binary_add) return nullptr;
    then[i].held_by_result = true;
  }
  const Md held_x = x.block ? layout_of(x) : onednn::any_layout(x.dtype, shape.x);
  const bool fixed_y = y.block || then.front().held_by_result;
  const auto desc =
      onednn::convolution(held_x, weight, bias, fixed_y ? layout_of(y) : onednn::any_layout(y.dtype, shape.y),
                          shape.onednn_windows(), then);
  if (!desc) return nullptr;
  return primitive_kernel<dnnl::convolution_forward>(*desc, layout_of(x), weight, bias, layout_of(y), context.threads,
                                                     context.followers, then);
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
    layout = convolution_weight_layout(node, weight);
    if (!layout || layout->bytes() != context.inputs[1].bytes())
      fail("kernel", "{}: its packed weight has {} bytes, which is not this machine's form; rewrite the program for it",
           node.label(), context.inputs[1].bytes());
  }
  if (packed ? x.dtype == layout->stored : onednn::is_native(x.dtype) && !is_empty(context, weight)) {
    if (y.count() == 0) return make_kernel([](const KernelArgs&) {});
    onednn::TeamScope team(context.threads);
    const Md given = packed ? layout->packed : onednn::dense(weight.dtype, shape.weights);
    const Md any_x = onednn::any_layout(x.dtype, shape.x), any_y = onednn::any_layout(y.dtype, shape.y);
    const Md any_weight = onednn::any_layout(x.dtype, shape.weights);
    const Md bias = bias_layout(context);
    const onednn::Windows windows = shape.onednn_windows();
    if (!context.followers.empty()) {
      auto fused = packed ? convolution_with_followers(context, shape, given, bias) : nullptr;
      return fused ? std::move(fused) : run_in_turn(context, prepare_convolution);
    }
    const Md held_x = x.block ? layout_of(x) : any_x, held_y = y.block ? layout_of(y) : any_y;
    std::optional<dnnl::convolution_forward::primitive_desc> desc;
    if (packed) desc = onednn::convolution(held_x, given, bias, held_y, windows);
    if (!desc) desc = onednn::convolution(held_x, any_weight, bias, held_y, windows);
    if (!desc) desc = onednn::convolution(any_x, any_weight, bias, any_y, windows);
    if (desc)
      return primitive_kernel<dnnl::convolution_forward>(*desc, layout_of(x), given, bias, layout_of(y),
                                                         context.threads);
  }
  if (!context.followers.empty()) return run_in_turn(context, prepare_convolution);
  check(x.block == 0 && y.block == 0, "only operands of oneDNN are in blocks");
  if (x.dtype == DType::bfloat16 || x.dtype == DType::float16) return via_float32(context, prepare_convolution);
  if (packed)
    fail("kernel", "{}: this convolution does not run on packed weights; load the program again", node.label());
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

/// A ConvTranspose's windows: those of the convolution from y to x. If the node gives the result's extents, the padding
/// follows from them (ONNX's ConvTranspose, the equations of `output_shape`).
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
      // A result that is larger than x's reach begins where x does; the rest is at its end.
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

/// The local forms, of our domain: with float32 sums of 16-bit operands and, if groups are split unevenly, with their
/// number, which differs between ranks, as operand 3.
template <auto Prepare>
std::unique_ptr<Kernel> prepare_local(const PrepareContext& context) {
  check(context.followers.empty(), "operators of our domain have no followers");
  Node node = context.node;
  node.domain = "";
  PrepareContext plain{node, context.inputs, context.outputs, context.known, context.threads};
  if (context.has_input(3)) {
    if (context.outputs.at(0).count() == 0) return make_kernel([](const KernelArgs&) {});
    node.set("group", context.known_ints(3).at(0));
    constexpr size_t kOwn = 3;
    node.inputs.resize(kOwn);
    plain.inputs.resize(kOwn);
    plain.known.resize(kOwn);
    std::shared_ptr<Kernel> kernel = Prepare(plain);
    const size_t scratch_bytes = kernel->scratch_bytes();
    return make_kernel(
        [kernel](const KernelArgs& args) {
          kernel->run({args.inputs.first(kOwn), args.outputs, args.scratch});
        },
        scratch_bytes);
  }
  return Prepare(plain);
}

std::optional<PackedLayout> pack_convolution(const Node& node, const TensorDesc& weight) {
  return packed_as(convolution_weight_layout(node, weight), node, weight,
                   {"group", "strides", "pads", "auto_pad", "dilations", "kernel_shape"});
}

}  // namespace

std::vector<KernelEntry> convolution_kernels() {
  return {
      {.op_type = "Conv", .domain = "", .prepare = prepare_convolution, .blocks = true, .pack = pack_convolution},
      {.op_type = "PackedConv", .domain = "tessera.cpu", .prepare = prepare_convolution, .blocks = true},
      {"ConvTranspose", "", prepare_transposed_convolution, {}},
      {.op_type = "Conv",
       .domain = "tessera",
       .prepare = prepare_local<prepare_convolution>,
       .pack =
           [](const Node& node, const TensorDesc& weight) {
             return node.input(3) ? std::nullopt : pack_convolution(node, weight);  // its groups are an operand
           }},
      {"ConvTranspose", "tessera", prepare_local<prepare_transposed_convolution>, {}},
  };
}

}  // namespace tessera::kernels
