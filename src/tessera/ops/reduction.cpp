#include <algorithm>

#include "tessera/ops/example.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/local/form.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

// Which dimensions a Reduce* reduces.
std::vector<bool> reduced_dims(const Node& node) {
  size_t rank = shape_of(node, 0).size();
  auto axes = axes_operand(node, 1, rank);
  if (!axes || axes->empty()) return std::vector<bool>(rank, node.get_int("noop_with_empty_axes", 0) == 0);
  std::vector<bool> reduced(rank, false);
  for (size_t axis : *axes) reduced[axis] = true;
  return reduced;
}

std::vector<bool> one_dim(const Node& node) {
  size_t rank = shape_of(node, 0).size();
  std::vector<bool> reduced(rank, false);
  reduced[normalize_axis(node, node.get_int("axis", 0), rank)] = true;
  return reduced;
}

bool is_arg(const Node& node) {
  return node.op_type.starts_with("Arg");
}
std::vector<bool> dims_of(const Node& node) {
  return is_arg(node) ? one_dim(node) : reduced_dims(node);
}

// The single element that known contents reduce to.
std::optional<std::vector<Expr>> reduced_content(const Node& node, const std::vector<bool>& reduced) {
  using Combine = Expr (*)(const Expr&, const Expr&);
  Combine combine = nullptr;
  if (node.op_type == "ReduceProd") combine = [](const Expr& a, const Expr& b) { return a * b; };
  if (node.op_type == "ReduceSum") combine = [](const Expr& a, const Expr& b) { return a + b; };
  if (node.op_type == "ReduceMax") combine = [](const Expr& a, const Expr& b) { return max(a, b); };
  if (node.op_type == "ReduceMin") combine = [](const Expr& a, const Expr& b) { return min(a, b); };
  auto elements = content_of(node.input(0));
  if (!combine || !elements || elements->empty() || reduced != std::vector<bool>{true}) return std::nullopt;
  Expr result = elements->front();
  for (size_t i = 1; i < elements->size(); ++i) result = combine(result, (*elements)[i]);
  return std::vector<Expr>{result};
}

void infer_reduce(Node& node) {
  std::vector<bool> reduced = dims_of(node);
  const Value& data = *node.input(0);
  bool keep = node.get_int("keepdims", 1) != 0;
  Shape shape;
  for (size_t d = 0; d < reduced.size(); ++d) {
    if (!reduced[d])
      shape.push_back(data.shape()[d]);
    else if (keep)
      shape.push_back(1);
  }
  set_result(node, 0, is_arg(node) ? DType::int64 : sum_dtype(node, data.dtype()), std::move(shape),
             reduced_content(node, reduced));
}

std::vector<Value*> localize_mean(Localizer& local);

// How the parts of a split reduced dimension combine: the results of parts by `across`, or within the local form.
struct Combining {
  std::string_view type;
  FactorKind kind = FactorKind::reduction;
  std::optional<Reduction> across = {};
  bool linear = false;  ///< a partial sum of operands gives a partial sum of results
  LocalizeFn localize = nullptr;
};

constexpr Combining kCombining[] = {
    {.type = "ReduceSum", .across = Reduction::sum, .linear = true},
    {.type = "ReduceMean", .across = Reduction::sum, .linear = true, .localize = localize_mean},
    {.type = "ReduceMax", .across = Reduction::max},
    {.type = "ReduceMin", .across = Reduction::min},
    {.type = "ReduceSumSquare", .across = Reduction::sum},
    {.type = "ReduceL1", .across = Reduction::sum},
    {.type = "ReduceProd", .kind = FactorKind::total, .localize = localize_product},
    {.type = "ReduceL2", .kind = FactorKind::moment, .localize = localize_root_or_log},
    {.type = "ReduceLogSum", .kind = FactorKind::moment, .localize = localize_root_or_log},
    {.type = "ReduceLogSumExp", .kind = FactorKind::moment, .localize = localize_log_sum_exp},
    {.type = "ArgMax", .kind = FactorKind::winner, .localize = localize_arg},
    {.type = "ArgMin", .kind = FactorKind::winner, .localize = localize_arg},
};

Combining combining_of(const Node& node) {
  Combining found = *std::find_if(std::begin(kCombining), std::end(kCombining),
                                  [&](const Combining& row) { return row.type == node.op_type; });
  DType dtype = node.input(0)->dtype();
  // An integer mean truncates, so that means of parts do not add up; bools have no collective.
  bool exact = dtype != DType::boolean && (node.op_type != "ReduceMean" || is_float(dtype));
  return exact ? found : Combining{.type = found.type, .kind = FactorKind::whole};
}

Rule reduce_rule(const Node& node) {
  std::vector<bool> reduced = dims_of(node);
  Combining combining = combining_of(node);
  bool keep = node.get_int("keepdims", 1) != 0;
  Rule rule = blank_rule(node);
  rule.operands[0] = add_dims(rule, node.input(0)->shape(), "abcdefgh");
  size_t out = 0;
  for (size_t d = 0; d < reduced.size(); ++d) {
    if (!reduced[d]) {
      rule.results[0][out++] = rule.operands[0][d];
      continue;
    }
    Factor& factor = rule.factors[d];
    factor.kind = combining.kind;
    factor.reduction = combining.across.value_or(Reduction::sum);
    if (keep) ++out;
  }
  if (combining.linear) rule.partial(Reduction::sum, {0});
  if (combining.across == Reduction::max || combining.across == Reduction::min) rule.partial(*combining.across, {0});
  return rule;
}

Expr reduce_flops(const Node& node) {
  return elements_of(*node.input(0));
}

// A mean over a split dimension: each rank's sum divided by the global count. 16-bit sums are taken in float32, because
// a sum may be out of range where its mean is not.
std::vector<Value*> localize_mean(Localizer& local) {
  bool split = false;
  Expr count = 1;
  const Shape& shape = local.node.input(0)->shape();
  std::vector<bool> reduced = dims_of(local.node);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!reduced[d]) continue;
    split |= local.split[local.rule.operands[0][d][0]];
    count = count * shape[d];
  }
  if (!split) return local.same();
  const DType dtype = local.outputs[0].dtype, wide = bits_of(dtype) < 32 ? DType::float32 : dtype;
  auto cast = [&](Value* value, const std::optional<Shape>& extents, DType to) {
    return local.emit("Cast", {value}, {to, extents}, {{"to", static_cast<int64_t>(to)}});
  };
  std::vector<Value*> operands = local.inputs;
  if (wide != operands[0]->dtype()) operands[0] = cast(operands[0], operands[0]->type.shape, wide);
  TensorType type{wide, local.outputs[0].shape};
  Value* sum = local.emit("ReduceSum", operands, type, local.node.attributes);
  Value* divisor = count.constant() ? local.graph.constant_scalar(wide, static_cast<double>(*count.constant()))
                                    : cast(local.graph.add_expression("", {count}, true), Shape{}, wide);
  Value* mean = local.emit("Div", {sum, divisor}, type);
  return {wide == dtype ? mean : cast(mean, type.shape, dtype)};
}

size_t cumulative_axis(const Node& node) {
  auto axis = constant_operand(node, 1, "axis");
  if (axis.size() != 1) fail_node(node, "its axis must be one number, not {}", axis.size());
  return normalize_axis(node, axis[0], shape_of(node, 0).size());
}

void infer_cumulative(Node& node) {
  cumulative_axis(node);
  set_result(node, 0, node.input(0)->dtype(), node.input(0)->shape());
}

Rule cumulative_rule(const Node& node) {
  Rule rule = rule_along(node, {static_cast<int>(cumulative_axis(node))}, FactorKind::scan);
  return node.is("CumSum") ? rule.partial(Reduction::sum, {0}) : rule;
}

/// What the operands of a reduction's examples hold, and how their results round.
struct Reduced {
  std::string_view type;
  Fill fill = Fill::integers;
  Rounding rounding = Rounding::none;
};

constexpr Reduced kReduced[] = {
    {"ReduceSum"},
    // Each rank divides its own sum; without cancellation those roundings are small beside the mean.
    {"ReduceMean", Fill::positive, Rounding::reordered},
    {"ReduceMax"},
    {"ReduceMin"},
    {"ReduceSumSquare"},
    {"ReduceL1"},
    {"ReduceL2"},
    {"ReduceProd", Fill::small},
    {"ReduceLogSum", Fill::positive},
    {"ReduceLogSumExp", Fill::reals, Rounding::reordered},
};

const Attribute kDrop{"keepdims", int64_t{0}};

std::vector<Example> reduce_examples(std::string_view type) {
  using namespace example;
  const Reduced& of =
      *std::find_if(std::begin(kReduced), std::end(kReduced), [&](const Reduced& row) { return row.type == type; });
  const auto is_one_of = [&](std::initializer_list<std::string_view> types) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  std::vector<Example> all = {
      {"the last dimension", {input("4 6", of.fill), ints({-1})}, {}, of.rounding},
      {"two dimensions, dropped", {input("4 3 5", of.fill), ints({0, -1})}, {kDrop}, of.rounding},
      {"everything", {input("4 6", of.fill)}, {kDrop}, of.rounding},
      {"symbolic", {input("s=5 4", of.fill), ints({0})}, {}, of.rounding},
  };
  const auto typed = [&](DType dtype, Fill fill = integers) {
    all.push_back({std::string(name_of(dtype)), {input("4 6", fill, dtype), ints({1})}});
  };
  if (is_one_of({"ReduceSum", "ReduceMean"})) typed(DType::int64);
  if (is_one_of({"ReduceSum", "ReduceMax", "ReduceProd"})) typed(DType::int32);
  if (type == "ReduceMin") typed(DType::uint8);
  if (type == "ReduceMax") typed(DType::boolean);
  if (is_one_of({"ReduceL2", "ReduceLogSum", "ReduceProd"})) typed(DType::int64, positive);
  if (type == "ReduceSum") typed(DType::bfloat16);  // sums below 2^8 are exact in its 8 bits
  if (is_one_of({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd"}))
    all.push_back({"bfloat16", {input("4 6", positive, DType::bfloat16), ints({1})}, {kDrop}, bfloat16});
  if (is_one_of({"ReduceSum", "ReduceProd", "ReduceSumSquare"})) all.push_back({"nothing", {input("4 0"), ints({1})}});
  if (type == "ReduceSum")
    all.push_back({"of no axes at all", {input("4 6"), ints({})}, {{"noop_with_empty_axes", int64_t{1}}}});
  if (type == "ReduceMax") all.push_back({"special values", {input("4 6", special), ints({1})}});
  if (type == "ReduceLogSumExp")
    all.push_back({"special values", {weight("9 4", special_integers), ints({1})}, {kDrop}, normalized});
  if (type == "ReduceMean") {
    all.push_back({"a sequence", {input("b=2 s=5 4", positive), ints({1})}, {kDrop}, reordered});
    all.push_back({"bfloat16", {input("4 6", positive, DType::bfloat16), ints({1})}, {}, bfloat16});
  }
  return all;
}

std::vector<Example> wide_sum_examples(std::string_view type) {
  using namespace example;
  return {{"float32 sums of bfloat16",
           {input("4 6", integers, DType::bfloat16), ints({1})},
           {{"accumulate", std::string("float32")}},
           type == "ReduceMean" ? reordered : none}};
}

std::vector<Example> arg_examples(std::string_view) {
  using namespace example;
  std::vector<Example> all = {
      {"rows", {input("4 6")}, {axis(-1)}},
      {"symbolic", {input("s=5 4")}, {axis(0), kDrop}},
      {"columns, the last of ties", {input("6 4", small)}, {axis(0), kDrop, {"select_last_index", int64_t{1}}}},
      {"bfloat16", {input("4 6", integers, DType::bfloat16)}, {axis(1)}},
  };
  for (int64_t last : {0, 1}) {
    const Attribute selects{"select_last_index", last};
    const std::string which = last ? ", the last" : "";
    all.push_back({"special values" + which, {weight("9 5", special_integers)}, {axis(1), selects}});
    all.push_back({"fewer rows than ranks" + which, {weight("2 5", special_integers)}, {axis(0), selects}});
    all.push_back({"uint8" + which, {weight("4 6", small, DType::uint8)}, {axis(1), selects}});
  }
  return all;
}

std::vector<Example> cumulative_examples(std::string_view) {
  using namespace example;
  const Attribute exclusive{"exclusive", int64_t{1}}, reverse{"reverse", int64_t{1}};
  return {
      {"rows", {input("4 6"), integer(1)}},
      {"columns, exclusive", {input("4 6"), integer(-2)}, {exclusive}},
      {"backwards", {input("4 6"), integer(1)}, {reverse}},
      {"backwards, exclusive", {input("4 6"), integer(0)}, {reverse, exclusive}},
      {"int32", {weight("3 7", nonzero, DType::int32), integer(1)}},
      {"a symbolic sequence", {input("2 s=3 3", small), integer(1)}},
      {"bfloat16", {input("4 6", small, DType::bfloat16), integer(1)}, {}, bfloat16},
      {"special values", {weight("9 5", special_integers), integer(1)}},
  };
}

}  // namespace

std::vector<OpDef> reduction_ops() {
  std::vector<OpDef> ops;
  for (const Combining& row : kCombining) {
    const bool sums = row.across == Reduction::sum;
    OpDef op{.type = row.type,
             .infer = infer_reduce,
             .rule = reduce_rule,
             .flops = reduce_flops,
             .localize = row.localize,
             .gradient = reduction_gradient(row.type),
             .no_gradient = row.type.starts_with("Arg") ? "its results are integers" : "",
             .wide_sums = sums,
             .examples = row.type.starts_with("Arg") ? arg_examples : reduce_examples};
    if (!row.type.starts_with("Arg")) op.values = {1};  // the axes
    ops.push_back(op);
    if (!sums) continue;
    op.domain = "tessera";
    op.gradient = nullptr;
    op.no_gradient = kMadeByPartitioner;
    op.wide_sums = false;
    op.examples = wide_sum_examples;
    ops.push_back(op);
  }
  ops.push_back({.type = "CumSum",
                 .infer = infer_cumulative,
                 .rule = cumulative_rule,
                 .flops = reduce_flops,
                 .localize = localize_cumulative,
                 .gradient = cumulative_sum_gradient,
                 .values = {1},
                 .examples = cumulative_examples});
  ops.push_back({.type = "CumProd",
                 .infer = infer_cumulative,
                 .rule = cumulative_rule,
                 .flops = reduce_flops,
                 .localize = localize_cumulative,
                 .no_gradient = "it is not taken yet",
                 .values = {1},
                 .examples = cumulative_examples});
  return ops;
}

}  // namespace tessera::ops
