#include "tessera/ops/dims.h"
#include "tessera/ops/gradients.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/require.h"
#include "tessera/ops/window.h"

namespace tessera::ops {
namespace {

// The extents of a Conv (weight [g·m, c, kernel…]) or a ConvTranspose (weight [g·c, m, kernel…]) from data
// [n, g·c, in…] to [n, g·m, out…].
struct ConvDims {
  Expr n, g, c, m;  // c and m, of a group, where the groups are no operand
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

// In our own domain, where ranks differ in how many groups they have, that number is an operand.
constexpr size_t kGroups = 3;

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
  if (node.input(kGroups)) {
    dims.g = content_operand(node, kGroups, "groups").front();
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
  if (node.input(2))
    require_equal(node, require_rank(node, 2, "the bias", 1)[0], dims.channels, "the bias's elements",
                  "the output channels");
  dims.windows = windows_of(node, *kernel);
  dims.in.assign(data.begin() + 2, data.end());
  size_t rank = dims.in.size();
  Dims extra = node.get_ints("output_padding", Dims(rank, 0)), asked = node.get_ints("output_shape");
  if (extra.size() != rank || (!asked.empty() && asked.size() != rank))
    fail_node(node, "output_padding and output_shape need {} values each", rank);
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

Rule conv_rule(const Node& node) {
  ConvDims dims = conv_dims(node);
  bool transposed = node.op_type == "ConvTranspose", biased = node.input(2);
  Rule rule = blank_rule(node);
  if (node.input(kGroups)) return rule;  // a rank's own node, which is not split again
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
  for (size_t d = 0; d < dims.in.size(); ++d)
    if (dims.windows.pointwise(d) && dims.in[d] == dims.out[d])
      rule.operands[0][2 + d] = rule.results[0][2 + d] = {rule.add(fmt::format("x{}", d), dims.in[d])};
  if (!biased) return rule.partial(Reduction::sum, {0}, {1}).partial(Reduction::sum, {1}, {0});
  rule.operands[2][0] = both(g, m);
  return rule.partial(Reduction::sum, {0, 2}, {1}).partial(Reduction::sum, {1, 2}, {0});
}

std::vector<Value*> localize_conv(Localizer& local) {
  int g = local.factor("g"), c = local.factor("c");
  if (c >= 0 && local.split[c] && local.node.input(2)) local.inputs[2] = local.on_first_shard(local.inputs[2], c);
  if (g < 0 || !local.split[g]) return local.same();
  std::vector<Value*> results = local.same();
  Node* conv = results[0]->producer;
  if (auto groups = local.extents[g].constant()) {
    conv->set("group", *groups);
  } else {
    conv->domain = "tessera";
    conv->remove_attribute("group");
    local.graph.set_input(conv, kGroups,
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
           .windows = true},
          {.type = "ConvTranspose",
           .infer = infer_conv,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .gradient = convolution_gradient,
           .wide_sums = true},
          {.type = "Conv",
           .domain = "tessera",
           .infer = infer_conv,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .values = {kGroups},
           .windows = true},
          {.type = "ConvTranspose",
           .domain = "tessera",
           .infer = infer_conv,
           .rule = conv_rule,
           .flops = conv_flops,
           .localize = localize_conv,
           .values = {kGroups}}};
}

}  // namespace tessera::ops
