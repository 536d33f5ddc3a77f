#include <algorithm>
#include <numeric>

#include "tessera/ops/example.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/local/form.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

size_t axis_of(const Node& node) {
  return normalize_axis(node, node.get_int("axis", -1), shape_of(node, 0).size());
}

std::vector<int> range(size_t begin, size_t end) {
  std::vector<int> dims(end - begin);
  std::iota(dims.begin(), dims.end(), static_cast<int>(begin));
  return dims;
}

void require_float(const Node& node) {
  if (!is_float(node.input(0)->dtype()))
    fail_node(node, "it normalizes floating-point data, not {}; Cast it", name_of(node.input(0)->dtype()));
}

// Softmax, LogSoftmax, Hardmax, LpNormalization: along one axis.
void infer_along_axis(Node& node) {
  axis_of(node);
  require_float(node);
  set_result(node, 0, node.input(0)->dtype(), node.input(0)->shape());
}

Rule along_axis_rule(const Node& node) {
  const bool scores = node.op_type.ends_with("Softmax");
  return rule_along(node, {static_cast<int>(axis_of(node))}, scores ? FactorKind::norm : FactorKind::moment);
}

Rule hardmax_rule(const Node& node) {
  return rule_along(node, {static_cast<int>(axis_of(node))}, FactorKind::winner);
}

// Maximum, subtraction, exponential, sum, division.
Expr softmax_flops(const Node& node) {
  return 5 * elements_of(*node.input(0));
}
Expr norm_flops(const Node& node) {
  return 8 * elements_of(*node.input(0));
}

// LayerNormalization and RMSNormalization: along all dimensions from `axis` on; scale and bias broadcast to the data.
void infer_layer_norm(Node& node) {
  size_t axis = axis_of(node);
  require_float(node);
  const Shape& data = node.input(0)->shape();
  shape_of(node, 1);
  require_broadcast_to(node, 1, "the scale", data);
  if (node.input(2)) require_broadcast_to(node, 2, "the bias", data);
  set_result(node, 0, node.input(0)->dtype(), data);
  Shape statistics = data;
  std::fill(statistics.begin() + static_cast<ptrdiff_t>(axis), statistics.end(), Expr(1));
  auto stash = static_cast<DType>(node.get_int("stash_type", 1));
  for (size_t r : {1, 2})
    if (node.output(r)) set_result(node, r, stash, statistics);
}

Rule layer_norm_rule(const Node& node) {
  const Shape& data = node.input(0)->shape();
  const std::vector<int> normalized = range(axis_of(node), data.size());
  Rule rule = rule_along(node, normalized, FactorKind::moment);
  for (size_t r = 1; r < node.outputs.size(); ++r)  // statistics
    if (node.outputs[r])
      for (int d : normalized) rule.results[r][d].clear();
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (node.inputs[i]) rule.operands[i] = broadcast_dims(node.inputs[i]->shape(), data, rule.operands[0]);
  return rule;
}

// BatchNormalization, InstanceNormalization, GroupNormalization: data [n, c, x…], everything else [c].
void infer_channel_norm(Node& node) {
  const Shape& data = shape_of(node, 0);
  require_float(node);
  if (data.size() < 2)
    fail_node(node, "its data needs a batch and a channel dimension, {} has neither", to_string(data));
  for (size_t i = 1; i < node.inputs.size(); ++i)
    require_equal(node, require_rank(node, i, "a per-channel operand", 1)[0], data[1],
                  "the elements of a per-channel operand", "the channels");
  const size_t results = node.get_int("training_mode", 0) != 0 ? 3 : 1;  // the others are the running statistics
  for (size_t r = 1; r < node.outputs.size(); ++r) {
    if (node.outputs[r] && r >= results) fail_node(node, "it has a result {}, which this form does not give", r + 1);
    if (node.outputs[r]) set_result(node, r, node.input(r + 2)->dtype(), {data[1]});
  }
  if (node.op_type == "GroupNormalization") {
    int64_t groups = node.get_int("num_groups", 0);
    if (groups < 1 || !Expr::exact_divide(data[1], groups))
      fail_node(node, "num_groups is {}, which does not divide the {} channels", groups, data[1].str());
  }
  set_result(node, 0, node.input(0)->dtype(), data);
}

Rule channel_norm_rule(const Node& node) {
  const Shape& data = node.input(0)->shape();
  Rule rule = blank_rule(node);
  rule.operands[0] = add_dims(rule, {data[0]}, "n");
  // Groups are independent; a group's channels are normalized together.
  const bool grouped = node.op_type == "GroupNormalization";
  const int64_t groups = grouped ? node.get_int("num_groups", 1) : 1;
  const Expr channels = *Expr::exact_divide(data[1], groups);
  DimFactors channel;
  if (groups > 1) channel.push_back(rule.add("g", groups));
  if (groups == 1 || !channels.is(1))
    channel.push_back(rule.add("c", channels, grouped && !channels.is(1) ? FactorKind::moment : FactorKind::pass));
  rule.operands[0].push_back(channel);
  rule.results[0] = rule.operands[0];
  for (size_t i = 1; i < node.inputs.size(); ++i) rule.operands[i] = {rule.operands[0][1]};
  auto spatial = add_dims(rule, Shape(data.begin() + 2, data.end()), "xyzuvw");
  for (auto* dims : {&rule.operands[0], &rule.results[0]}) dims->insert(dims->end(), spatial.begin(), spatial.end());
  // Statistics are given (Batch), taken over the spatial dimensions (Instance), or over groups of channels too.
  if (node.op_type != "BatchNormalization")
    for (const DimFactors& dim : spatial) rule.factors[dim[0]].kind = FactorKind::moment;
  return rule;
}

Expr batch_norm_flops(const Node& node) {
  return 2 * elements_of(*node.input(0));
}

std::vector<int> mean_variance_axes(const Node& node) {
  const Shape& data = shape_of(node, 0);
  std::vector<int> axes;
  for (int64_t axis : node.get_ints("axes", {0, 2, 3}))
    axes.push_back(static_cast<int>(normalize_axis(node, axis, data.size())));
  return axes;
}

void infer_mean_variance(Node& node) {
  mean_variance_axes(node);
  require_float(node);
  set_result(node, 0, node.input(0)->dtype(), node.input(0)->shape());
}

Rule mean_variance_rule(const Node& node) {
  return rule_along(node, mean_variance_axes(node), FactorKind::moment);
}

std::vector<Example> along_axis_examples(std::string_view type) {
  using namespace example;
  std::vector<Example> all = {
      {"rows", {input("4 6", reals)}, {axis(-1)}, normalized},
      {"columns", {input("6 4 2", reals)}, {axis(0)}, normalized},
      {"symbolic", {input("b=3 2 5", reals)}, {axis(2)}, normalized},
      {"nothing", {input("0 4", reals)}, {axis(-1)}, normalized},
      {"long rows", {input("3 70", reals)}, {axis(1)}, normalized},
      {"fewer columns than ranks", {input("6 2", reals)}, {axis(1)}, normalized},
  };
  if (type == "LpNormalization")
    all.push_back({"absolute values", {input("4 6", reals)}, {axis(1), {"p", int64_t{1}}}, normalized});
  if (type == "Softmax" || type == "LpNormalization")
    all.push_back({"bfloat16", {input("4 6", reals, DType::bfloat16)}, {axis(-1)}, bfloat16});
  if (type == "Hardmax") all.push_back({"ties", {input("5 7", small)}, {axis(1)}});
  return all;
}

std::vector<Example> layer_norm_examples(std::string_view type) {
  using namespace example;
  const Example narrow = {
      "bfloat16", {input("4 6", reals, DType::bfloat16), weight("6", reals, DType::bfloat16)}, {}, bfloat16};
  // The data of most are weights: these are ordered, and not gathered, however short their rows are.
  const ExampleOperand rows = weight("4 6", reals), planes = weight("5 4 6", reals), scale = weight("6", reals),
                       scales = weight("4 6", reals);
  if (type == "RMSNormalization")
    return {{"rows", {rows, scale}, {}, normalized},
            {"two dimensions", {planes, scales}, {axis(-2)}, normalized},
            {"fewer columns than ranks", {weight("6 2", reals), weight("2", reals)}, {}, normalized},
            narrow};
  return {{"rows", {rows, scale, scale}, {}, normalized},
          {"two dimensions", {planes, scales}, {axis(1)}, normalized},
          {"symbolic", {input("b=3 2 6", reals), scale, scale}, {axis(-1), {"epsilon", 0.01F}}, normalized},
          {"with statistics", {rows, scale, scale}, {}, normalized, 3},
          {"two dimensions with statistics", {planes, scales, scales}, {axis(1)}, normalized, 3},
          {"a bias for all", {input("4 6", reals), scale, weight("1", reals)}, {}, normalized},
          narrow};
}

std::vector<Example> channel_norm_examples(std::string_view type) {
  using namespace example;
  const ExampleOperand channel = weight("6", reals), image = weight("2 6 3 4", reals);
  if (type == "BatchNormalization")
    return {{"given statistics", {input("2 6 3 2", reals), channel, channel, channel, weight("6", above_one)}},
            {"without spatial dimensions",
             {input("4 6", reals), weight("6"), weight("6"), weight("6"), weight("6", positive)}}};
  if (type == "InstanceNormalization") return {{"images", {image, channel, channel}, {}, normalized}};
  const auto groups = [](int64_t count) { return Attribute{"num_groups", count}; };
  const ExampleOperand half = weight("4", integers, DType::float16);
  return {{"images", {image, channel, channel}, {groups(3)}, normalized},
          {"groups of one channel", {weight("2 6 5", reals), channel, channel}, {groups(6)}, normalized},
          {"float16", {input("2 4 3", reals, DType::float16), half, half}, {groups(2)}, bfloat16},
          {"one group", {weight("3 6 5", reals), channel, channel}, {groups(1)}, normalized}};
}

std::vector<Example> mean_variance_examples(std::string_view) {
  using namespace example;
  return {{"channels", {input("2 6 3 4", reals)}, {}, normalized},
          {"other axes", {input("4 6 3", reals)}, {{"axes", std::vector<int64_t>{-1}}}, normalized}};
}

}  // namespace

std::vector<OpDef> normalization_ops() {
  return {
      {.type = "Softmax",
       .infer = infer_along_axis,
       .rule = along_axis_rule,
       .flops = softmax_flops,
       .localize = localize_softmax,
       .gradient = softmax_gradient,
       .examples = along_axis_examples},
      {.type = "LogSoftmax",
       .infer = infer_along_axis,
       .rule = along_axis_rule,
       .flops = softmax_flops,
       .localize = localize_softmax,
       .gradient = log_softmax_gradient,
       .examples = along_axis_examples},
      {.type = "Hardmax",
       .infer = infer_along_axis,
       .rule = hardmax_rule,
       .localize = localize_hardmax,
       .gradient = no_gradient,
       .examples = along_axis_examples},
      {.type = "LpNormalization",
       .infer = infer_along_axis,
       .rule = along_axis_rule,
       .flops = softmax_flops,
       .localize = localize_lp_normalization,
       .gradient = lp_normalization_gradient,
       .examples = along_axis_examples},
      {.type = "LayerNormalization",
       .infer = infer_layer_norm,
       .rule = layer_norm_rule,
       .flops = norm_flops,
       .localize = localize_layer_normalization,
       .gradient = layer_normalization_gradient,
       .broadcast_one_way = {1, 2},
       .examples = layer_norm_examples},
      {.type = "RMSNormalization",
       .infer = infer_layer_norm,
       .rule = layer_norm_rule,
       .flops = norm_flops,
       .localize = localize_layer_normalization,
       .gradient = rms_normalization_gradient,
       .broadcast_one_way = {1},
       .examples = layer_norm_examples},
      {.type = "BatchNormalization",
       .infer = infer_channel_norm,
       .rule = channel_norm_rule,
       .flops = batch_norm_flops,
       .gradient = batch_normalization_gradient,
       .untrained = {3, 4},
       .examples = channel_norm_examples},
      {.type = "InstanceNormalization",
       .infer = infer_channel_norm,
       .rule = channel_norm_rule,
       .flops = norm_flops,
       .localize = localize_channel_normalization,
       .gradient = group_normalization_gradient,
       .examples = channel_norm_examples},
      {.type = "GroupNormalization",
       .infer = infer_channel_norm,
       .rule = channel_norm_rule,
       .flops = norm_flops,
       .localize = localize_channel_normalization,
       .gradient = group_normalization_gradient,
       .examples = channel_norm_examples},
      {.type = "MeanVarianceNormalization",
       .infer = infer_mean_variance,
       .rule = mean_variance_rule,
       .flops = norm_flops,
       .localize = localize_mean_variance,
       .gradient = mean_variance_gradient,
       .examples = mean_variance_examples},
  };
}

}  // namespace tessera::ops
