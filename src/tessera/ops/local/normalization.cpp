#include <algorithm>
#include <numeric>

#include "tessera/ops/library/infer.h"
#include "tessera/ops/local/form.h"

namespace tessera::ops {
namespace {

std::vector<size_t> dims_from(size_t begin, size_t end) {
  std::vector<size_t> dims(end - begin);
  std::iota(dims.begin(), dims.end(), begin);
  return dims;
}

/// What a row's elements are beside their mean, and the mean of the squares of that. Each rank takes the squares of
/// differences from the mean of all, so that no more cancels than on one device.
struct Moments {
  Value* mean = nullptr;
  Value* centred = nullptr;
  Value* variance = nullptr;
};

Moments moments_of(SplitForm& form, Value* x) {
  Moments moments;
  Value* count = form.count(x->dtype());
  moments.mean = form.div(form.reduced("ReduceSum", x, Reduction::sum, "mean"), count);
  moments.centred = form.sub(x, moments.mean);
  moments.variance = form.div(form.reduced("ReduceSumSquare", moments.centred, Reduction::sum, "variance"), count);
  return moments;
}

Value* inverse_of_deviation(SplitForm& form, Value* squares) {
  const double epsilon = form.local.node.get_float("epsilon", 1e-5f);
  return form.unary("Reciprocal", form.unary("Sqrt", form.add(squares, epsilon)));
}

/// A per-channel operand as [c, 1, …], beside data [n, c, …].
Value* beside_channels(SplitForm& form, size_t operand, const Value* x) {
  Value* given = form.local.inputs[operand];
  Shape column(x->rank() - 1, Expr(1));
  column[0] = given->shape()[0];
  return form.cast(form.reshape(given, column), x->dtype());
}

/// The data as [n, groups, elements of a group].
Value* by_groups(SplitForm& form, Value* x, const Expr& groups) {
  Expr rest = 1;
  const Shape& shape = x->shape();
  for (size_t d = 2; d < shape.size(); ++d) rest = rest * shape[d];
  const int channel = form.local.rule.operands[0][1].back();
  const bool has_several = form.local.rule.factors[channel].kind == FactorKind::moment;
  const Expr per_group = has_several ? form.local.extents[channel] : Expr(1);
  return form.reshape(x, {shape[0], groups, per_group * rest});
}

}  // namespace

// LayerNormalization and RMSNormalization: y = (x - mean) / deviation · scale + bias, of which the mean and the
// deviation are those of all ranks' parts together. RMSNormalization has no mean.
std::vector<Value*> localize_layer_normalization(Localizer& local) {
  const Node& node = local.node;
  SplitForm form(local, dims_from(axis_along(node, -1), node.input(0)->rank()));
  if (!form.is_split()) return local.same();
  Value* x = form.widened(local.inputs[0]);
  Moments moments{nullptr, x, nullptr};
  if (node.is("LayerNormalization"))
    moments = moments_of(form, x);
  else
    moments.variance = form.div(form.reduced("ReduceSumSquare", x, Reduction::sum, "squares"), form.count(x->dtype()));
  Value* inverse = inverse_of_deviation(form, moments.variance);
  Value* y = form.mul(form.mul(moments.centred, inverse), form.cast(local.inputs[1], x->dtype()));
  if (node.input(2)) y = form.add(y, form.cast(local.inputs[2], x->dtype()));
  std::vector<Value*> results = {form.cast(y, local.outputs[0].dtype)};
  for (Value* statistic : {moments.mean, inverse})
    if (const size_t r = results.size(); r < node.outputs.size())
      results.push_back(node.outputs[r] ? form.cast(statistic, local.outputs[r].dtype) : nullptr);
  return results;
}

// InstanceNormalization and GroupNormalization. A rank that has whole groups, as many as every other rank, runs the
// operator with fewer groups, on data of another shape: its own no longer fits the whole tensors.
std::vector<Value*> localize_channel_normalization(Localizer& local) {
  const Node& node = local.node;
  const bool grouped = node.is("GroupNormalization");
  const std::vector<int>& channel = local.rule.operands[0][1];
  const int64_t all_groups = grouped ? node.get_int("num_groups", 0) : 0;
  // Groups pass, also a single one of one channel, which a rank may lack.
  const bool groups_pass = local.rule.factors[channel.front()].kind == FactorKind::pass;
  const Expr groups = grouped && groups_pass ? local.extents[channel.front()] : Expr(1);
  SplitForm form(local, dims_from(grouped ? 1 : 2, node.input(0)->rank()));
  const auto own = groups.constant();
  if (!form.is_split() && (!grouped || (own && *own > 0))) {
    const bool whole = std::none_of(channel.begin(), channel.end(), [&](int factor) { return local.split[factor]; });
    if (!grouped || whole) return local.same();
    const Shape& shape = local.inputs[0]->shape();
    Shape flat = {shape[0], shape[1], product(Shape(shape.begin() + 2, shape.end()))};
    if (shape.size() == 3) flat.push_back(1);
    std::vector<Attribute> attributes = node.attributes;
    for (Attribute& attribute : attributes)
      if (attribute.name == "num_groups") attribute.value = *own;
    Value* y = form.emit(node.op_type, {form.reshape(local.inputs[0], flat), local.inputs[1], local.inputs[2]},
                         std::move(attributes));
    return {form.reshape(y, shape)};
  }
  Value* x = form.widened(local.inputs[0]);
  Moments moments;
  if (grouped) {
    // One element for each group, as the exchanged values' layout has it: [n, groups, 1, …].
    Shape one(x->rank(), Expr(1));
    one[0] = x->shape()[0];
    one[1] = groups;
    Value* count = form.count(x->dtype(), all_groups);
    const auto mean_of = [&](std::string_view op, Value* rows, std::string_view name) {
      Value* part =
          form.reshape(form.emit(op, {rows, form.graph.constant_int64({2})}, {{"keepdims", int64_t{1}}}), one);
      if (form.is_split()) part = local.reduce(part, form.factors, Reduction::sum, name);
      return form.div(form.reshape(part, {one[0], groups, 1}), count);
    };
    Value* rows = by_groups(form, x, groups);
    moments.mean = mean_of("ReduceSum", rows, "mean");
    moments.centred = form.sub(rows, moments.mean);
    moments.variance = mean_of("ReduceSumSquare", moments.centred, "variance");
  } else {
    moments = moments_of(form, x);
  }
  Value* normal = form.reshape(form.mul(moments.centred, inverse_of_deviation(form, moments.variance)), x->shape());
  Value* y = form.add(form.mul(normal, beside_channels(form, 1, x)), beside_channels(form, 2, x));
  return {form.cast(y, local.outputs[0].dtype)};
}

std::vector<Value*> localize_mean_variance(Localizer& local) {
  const Node& node = local.node;
  std::vector<size_t> dims;
  for (int64_t axis : node.get_ints("axes", {0, 2, 3}))
    dims.push_back(normalize_axis(node, axis, node.input(0)->rank()));
  SplitForm form(local, std::move(dims));
  if (!form.is_split()) return local.same();
  const Moments moments = moments_of(form, form.widened(local.inputs[0]));
  Value* deviation = form.add(form.unary("Sqrt", moments.variance), 1e-9);
  return {form.cast(form.mul(moments.centred, form.unary("Reciprocal", deviation)), local.outputs[0].dtype)};
}

// Divided by the sum of magnitudes or by the root of the sum of squares; a row of zeros stays.
std::vector<Value*> localize_lp_normalization(Localizer& local) {
  SplitForm form(local, {axis_along(local.node, -1)});
  if (!form.is_split()) return local.same();
  Value* x = form.widened(local.inputs[0]);
  const bool magnitudes = local.node.get_int("p", 2) == 1;
  Value* norm = form.reduced(magnitudes ? "ReduceL1" : "ReduceSumSquare", x, Reduction::sum, "norm");
  if (!magnitudes) norm = form.unary("Sqrt", norm);
  Value* is_zero = form.emit("Equal", {norm, form.number(norm, 0)});
  return {form.cast(form.div(x, form.where(is_zero, form.number(norm, 1), norm)), local.outputs[0].dtype)};
}

// Along a split axis all ranks take the largest element and the sum of exponentials together. The rest is what the
// operator does, in its order and in float32 for 16-bit data, so that rows of -inf, +inf and NaN give the same:
//   d = x - max(x), e = exp(d);  Softmax = e / sum(e),  LogSoftmax = d - log(sum(e))
std::vector<Value*> localize_softmax(Localizer& local) {
  SplitForm form(local, {axis_along(local.node, -1)});
  if (!form.is_split()) return local.same();
  Value* x = form.widened(local.inputs[0]);
  Value* distance = form.sub(x, form.reduced("ReduceMax", x, Reduction::max, "max"));
  Value* exponential = form.unary("Exp", distance);
  Value* sum = form.reduced("ReduceSum", exponential, Reduction::sum, "sum");
  Value* y = local.node.is("Softmax") ? form.div(exponential, sum) : form.sub(distance, form.unary("Log", sum));
  return {form.cast(y, local.outputs[0].dtype)};
}

}  // namespace tessera::ops
