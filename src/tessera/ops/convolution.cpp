#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/codes.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/finite.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/library/window.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

// The extents of a Conv (weight [g·m, c, kernel…]) or a ConvTranspose (weight [g·c, m, kernel…]) from data
// [n, g·c, in…] to [n, g·m, out…].
struct ConvDims {
  Expr n, g, c, m;  // c and m, of a group, if the groups are not an operand
  Expr channels;    // of the result
  Shape in, out;
  Windows windows;
};

Expr pieces(const Node& node, const Expr& extent, int64_t groups, std::string_view what) {
  auto each = Expr::exact_divide(extent, groups);
  if (!each)
    fail_node(node, "{} {} do not divide into {} groups; the attribute 'group' must divide them", extent.str(), what,
              groups);
  return *each;
}

// ConvInteger has zero points of data and weight where a Conv has its bias.
bool of_integers(const Node& node) {
  return node.op_type == "ConvInteger";
}
bool has_bias(const Node& node) {
  return !of_integers(node) && node.input(2);
}

// In our own domain, where ranks differ in how many groups they have, that number is an operand.
constexpr size_t kGroups = 3, kGroupsOfIntegers = 4;

size_t groups_operand(const Node& node) {
  return of_integers(node) ? kGroupsOfIntegers : kGroups;
}

ConvDims conv_dims(const Node& node) {
  bool transposed = node.op_type == "ConvTranspose";
  const Shape &data = shape_of(node, 0), &weight = shape_of(node, 1);
  if (data.size() < 3 || weight.size() != data.size())
    fail_node(node, "data {} and weight {} must have the same rank, at least 3", to_string(data), to_string(weight));
  auto kernel = constants_of(Shape(weight.begin() + 2, weight.end()));
  if (!kernel)
    fail_node(node, "the weight's window {} must be known; export the model with fixed weights", to_string(weight));
  Dims stated = node.get_ints("kernel_shape", *kernel);
  if (stated != *kernel) fail_node(node, "kernel_shape differs from the weight's window {}", to_string(weight));
  ConvDims dims;
  dims.n = data[0];
  if (transposed) require_equal(node, data[1], weight[0], "the data's channels", "the weight's first dimension");
  if (node.input(groups_operand(node))) {
    dims.g = content_operand(node, groups_operand(node), "groups").front();
    dims.channels = transposed ? dims.g * weight[1] : weight[0];
    if (!transposed) require_equal(node, data[1], dims.g * weight[1], "the data's channels", "those of all groups");
  } else {
    int64_t groups = node.get_int("group", 1);
    if (groups < 1) fail_node(node, "group is {}; at least 1 is needed", groups);
    dims.g = groups;
    dims.c = pieces(node, data[1], groups, "channels");
    if (transposed) {
      dims.m = weight[1];
    } else {
      dims.c =
          require_equal(node, dims.c, weight[1], "the data's channels in a group", "the weight's second dimension");
      dims.m = pieces(node, weight[0], groups, "output channels");
    }
    dims.channels = dims.g * dims.m;
  }
  if (has_bias(node))
    require_equal(node, require_rank(node, 2, "the bias", 1)[0], dims.channels, "the bias's elements",
                  "the output channels");
  dims.windows = windows_of(node, *kernel);
  dims.in.assign(data.begin() + 2, data.end());
  size_t rank = dims.in.size();
  Dims extra = node.get_ints("output_padding", Dims(rank, 0)), asked = node.get_ints("output_shape");
  if (extra.size() != rank || (!asked.empty() && asked.size() != rank))
    fail_node(node, "output_padding and output_shape need {} each", counted(rank, "value"));
  for (size_t d = 0; d < rank; ++d) {
    const Windows& w = dims.windows;
    if (!transposed)
      dims.out.push_back(windows_along(node, w, d, dims.in[d]));
    else if (!asked.empty())
      dims.out.push_back(asked[d]);
    else if (w.auto_pad.starts_with("SAME"))
      dims.out.push_back(dims.in[d] * w.strides[d]);
    else
      dims.out.push_back((dims.in[d] - 1) * w.strides[d] + extra[d] + w.reach(d) - w.begin[d] - w.end[d]);
  }
  return dims;
}

void infer_conv(Node& node) {
  DType dtype = require_same_dtype(node, {0, 1, 2});
  ConvDims dims = conv_dims(node);
  Shape shape{dims.n, dims.channels};
  shape.insert(shape.end(), dims.out.begin(), dims.out.end());
  set_result(node, 0, sum_dtype(node, dtype), std::move(shape));
}

void infer_conv_integer(Node& node) {
  require_bytes(node, 0);
  require_bytes(node, 1);
  const ConvDims dims = conv_dims(node);
  require_zero_point(node, 2, 0, 1);
  require_zero_point(node, 3, 1, dims.channels);
  Shape shape{dims.n, dims.channels};
  shape.insert(shape.end(), dims.out.begin(), dims.out.end());
  set_result(node, 0, DType::int32, std::move(shape));
}

// The halo of a transposed convolution along spatial dimension `d`: result element j is a sum over the elements i whose
// windows i·stride - begin … i·stride - begin + reach - 1 cover it. Nullopt if no single form of the node serves all
// ranks.
std::optional<Window> transposed_window(const Node& node, const Windows& windows, size_t d) {
  const int64_t stride = windows.strides[d], reach = windows.reach(d);
  const bool derived = !node.get_ints("output_shape").empty() || windows.auto_pad.starts_with("SAME");
  if (derived || reach < stride) return std::nullopt;
  return Window{1, stride, windows.begin[d] - reach + stride, windows.begin[d]};
}

// Whether weights may meet zeros that a rank reads as padding, where one device reads nothing: 0 · inf is NaN. Those
// that a step changes may, since a step whose numbers are not finite is lost anyway.
bool may_meet_padding(const Value* weights) {
  const Value* state = weights;
  while (state->producer && moves_of(*state->producer) >= Moves::part) state = state->producer->input(0);
  return state->changing || are_finite(weights);
}

Rule conv_rule(const Node& node) {
  ConvDims dims = conv_dims(node);
  const bool transposed = node.op_type == "ConvTranspose", integers = of_integers(node);
  Rule rule = blank_rule(node);
  if (node.input(groups_operand(node))) return rule;  // a rank's own node, which is not split again
  DimFactors n{rule.add("n", dims.n)}, g, c, m;
  if (!dims.g.is(1)) g = {rule.add("g", dims.g)};
  if (g.empty() || !dims.c.is(1)) c = {rule.add("c", dims.c, FactorKind::reduction)};  // depthwise: nothing to sum
  if (g.empty() || !dims.m.is(1)) m = {rule.add("m", dims.m)};
  auto both = [](DimFactors major, const DimFactors& minor) {
    major.insert(major.end(), minor.begin(), minor.end());
    return major;
  };
  rule.operands[0][0] = rule.results[0][0] = n;
  rule.operands[0][1] = both(g, c);
  rule.operands[1][0] = transposed ? both(g, c) : both(g, m);
  rule.operands[1][1] = transposed ? m : c;
  rule.results[0][1] = both(g, m);
  const auto paddings = paddings_of(dims.windows, dims.in);
  const bool may_pad = integers || may_meet_padding(node.input(1));
  for (size_t d = 0; d < dims.in.size(); ++d) {
    const bool passes = dims.windows.pointwise(d) && dims.in[d] == dims.out[d];
    const bool pads = transposed || (paddings && !((*paddings)[d].begin == 0 && (*paddings)[d].end == 0));
    if (!passes && pads && !may_pad) continue;
    if (!passes && transposed) {
      if (const auto window = transposed_window(node, dims.windows, d))
        rule.operands[0][2 + d] = rule.results[0][2 + d] = {rule.add_halo(fmt::format("x{}", d), dims.out[d], *window)};
    } else if (passes || paddings)
      rule.operands[0][2 + d] = rule.results[0][2 + d] =
          add_window_factor(rule, dims.windows, d, paddings ? (*paddings)[d] : Padding{}, dims.in[d], dims.out[d]);
  }
  if (integers) {
    if (is_list_of_zero_points(node, 3)) rule.operands[3] = {both(g, m)};
    return rule;
  }
  if (!has_bias(node)) return rule.partial(Reduction::sum, {0}, {1}).partial(Reduction::sum, {1}, {0});
  rule.operands[2][0] = both(g, m);
  return rule.partial(Reduction::sum, {0, 2}, {1}).partial(Reduction::sum, {1, 2}, {0});
}

// A rank computes all that its elements reach, without padding, and takes its own results out of that. Example: stride
// 2, windows of 3, padding 1. Results 4 … 7 are sums over elements 2 … 4, which reach -1 + 4 … -1 + 10 = 3 … 9.
std::vector<Value*> localize_transposed(Localizer& local, const Windows& windows) {
  const size_t rank = windows.kernel.size();
  Dims begin = windows.begin, end = windows.end, extra = local.node.get_ints("output_padding", Dims(rank, 0));
  const Shape wanted = *local.outputs[0].shape;
  std::vector<Expr> starts, ends;
  std::vector<int64_t> axes;
  for (size_t d = 0; d < rank; ++d) {
    if (!splits_windows(local, d)) continue;
    const int f = local.factor(fmt::format("x{}", d));
    Value* zero = local.graph.constant_scalar(local.inputs[0]->dtype(), 0);
    const Localizer::Widened part = local.widen(local.inputs[0], 0, 2 + d, zero);
    local.inputs[0] = part.value;
    (*local.outputs[0].shape)[2 + d] = (part.value->shape()[2 + d] - 1) * windows.strides[d] + windows.reach(d);
    const Expr start = local.offsets[f] + begin[d] - part.begin * windows.strides[d];
    starts.push_back(start);
    ends.push_back(start + wanted[2 + d]);
    axes.push_back(static_cast<int64_t>(2 + d));
    begin[d] = end[d] = extra[d] = 0;
  }
  std::vector<Value*> results = local.same();
  if (axes.empty()) return results;
  Node* node = results[0]->producer;
  begin.insert(begin.end(), end.begin(), end.end());
  node->remove_attribute("auto_pad");
  node->set("pads", begin);
  node->set("output_padding", extra);
  local.outputs[0].shape = wanted;
  return {sliced(local, results[0], starts, ends, axes, wanted)};
}

// The convolution that a local form consists of, if its result is cut out.
Node* maker_of(const Value* result) {
  Node* node = result->producer;
  return node->is("Slice") ? node->input(0)->producer : node;
}

// Padding stands for zeros, as the zero point of the data does.
std::vector<Value*> same_integer_windows(Localizer& local, const Windows& windows) {
  Value* zero = local.inputs.size() > 2 ? local.inputs[2] : nullptr;
  if (!zero) return same_windows(local, windows, 0);
  return windows_filled_with(
      local, windows, zero->rank() == 0 ? zero : NodeBuilder(local.graph, zero->name, nullptr).reshape(zero, {}));
}

std::vector<Value*> localize_conv(Localizer& local) {
  int g = local.factor("g"), c = local.factor("c");
  if (c >= 0 && local.split[c] && has_bias(local.node)) local.inputs[2] = local.on_first_shard(local.inputs[2], c);
  const Windows windows = conv_dims(local.node).windows;
  std::vector<Value*> results = local.node.is("ConvTranspose") ? localize_transposed(local, windows)
                                : of_integers(local.node)      ? same_integer_windows(local, windows)
                                                               : same_windows(local, windows, 0);
  if (g < 0 || !local.split[g]) return results;
  Node* conv = maker_of(results[0]);
  if (auto groups = local.extents[g].constant()) {
    conv->set("group", *groups);
  } else {
    conv->domain = "tessera";
    conv->remove_attribute("group");
    local.graph.set_input(conv, groups_operand(local.node),
                          local.graph.add_expression(results[0]->name + ".groups", {local.extents[g]}, true));
  }
  return results;
}

Expr conv_flops(const Node& node) {
  ConvDims dims = conv_dims(node);
  const Shape& windows = node.op_type == "ConvTranspose" ? dims.in : dims.out;
  const Shape& weight = node.input(1)->shape();
  return 2 * dims.n * weight[0] * weight[1] * product(windows) * count_of(dims.windows.kernel);
}

}  // namespace

std::vector<OpDef> convolution_ops() {
  return {{.type = "Conv",
           .infer = infer_conv,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .gradient = convolution_gradient,
           .wide_sums = true,
           .windows = true,
           .examples = convolution_examples},
          {.type = "ConvTranspose",
           .infer = infer_conv,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .gradient = convolution_gradient,
           .wide_sums = true,
           .examples = convolution_examples},
          {.type = "Conv",
           .domain = "tessera",
           .infer = infer_conv,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .no_gradient = kMadeByPartitioner,
           .values = {kGroups},
           .windows = true},
          {.type = "ConvTranspose",
           .domain = "tessera",
           .infer = infer_conv,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .no_gradient = kMadeByPartitioner,
           .values = {kGroups}},
          {.type = "ConvInteger",
           .infer = infer_conv_integer,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .no_gradient = "its operands are integers",
           .windows = true,
           .examples = integer_convolution_examples},
          {.type = "ConvInteger",
           .domain = "tessera",
           .infer = infer_conv_integer,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .no_gradient = kMadeByPartitioner,
           .values = {kGroupsOfIntegers},
           .windows = true}};
}

}  // namespace tessera::ops
