#include "tessera/ops/random.h"

#include <algorithm>

#include "tessera/ops/example.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

void require_scalar_operand(const Node& node, size_t index, std::string_view what) {
  if (has_operand(node, index) && !product(shape_of(node, index)).is(1))
    fail_node(node, "{} ('{}') has the shape {}; give one number", what, node.input(index)->name,
              to_string(shape_of(node, index)));
}

void require_place(const Node& node, size_t counter) {
  require_scalar_operand(node, counter, "the counter");
  if (has_operand(node, counter) && operand(node, counter).dtype() != DType::int64)
    fail_node(node, "the counter ('{}') is {}; it must be int64", node.input(counter)->name,
              name_of(node.input(counter)->dtype()));
  if (!has_operand(node, counter + 1)) return;
  const Value& index = operand(node, counter + 1);
  if (index.dtype() != DType::int64 || index.rank() != 1)
    fail_node(node, "the index ('{}') is {} {}; it must be a list of int64", index.name, name_of(index.dtype()),
              to_string(index.shape()));
}

// Which elements of the result this rank has, as ops/random.h says it. Neighbours of the box of which the minor one is
// whole are one: 3·4{tp} of a matrix with 5 columns is [offset·5, 3, 4·5, extent·5, 1].
std::vector<Expr> places_of(const Localizer& local) {
  std::vector<std::pair<Expr, Expr>> box;  // minor first
  Expr first = 0, stride = 1;
  const auto add = [&](const Expr& size, const Expr& offset, const Expr& extent) {
    first = first + offset * stride;
    if (!box.empty() && box.back().first * box.back().second == stride)
      box.back().first = box.back().first * extent;
    else
      box.emplace_back(extent, stride);
    stride = stride * size;
  };
  const size_t result = local.node.output() ? 0 : 1;
  const std::vector<DimFactors>& dims = local.rule.results[result];
  const Shape& shape = local.node.output(result)->shape();
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d].empty()) add(shape[d], 0, shape[d]);
    for (size_t f = dims[d].size(); f-- > 0;) {
      const auto& pieces = local.pieces.at(dims[d][f]);
      for (size_t p = pieces.size(); p-- > 0;) add(pieces[p].size, pieces[p].offset, pieces[p].extent);
    }
  }
  std::vector<Expr> places = {first};
  for (size_t b = box.size(); b-- > 0;) {
    places.push_back(box[b].first);
    places.push_back(box[b].second);
  }
  return places;
}

// The node on local operands, with operand `index` if it is split.
std::vector<Value*> placed(Localizer& local, size_t index) {
  if (std::find(local.split.begin(), local.split.end(), true) != local.split.end()) {
    const Value& named = *(local.node.output() ? local.node.output() : local.node.output(1));
    local.inputs.resize(index + 1, nullptr);
    local.inputs[index] = local.graph.add_expression(named.name + ".index", places_of(local));
  }
  return local.same();
}

// --- Dropout

constexpr size_t kDropoutCounter = 3;

void infer_keyed_dropout(Node& node) {
  const Value& data = operand(node, 0);
  if (!is_float(data.dtype())) fail_node(node, "it drops elements of {}; give floats", name_of(data.dtype()));
  require_scalar_operand(node, 1, "the ratio");
  require_scalar_operand(node, 2, "training_mode");
  require_place(node, kDropoutCounter);
  set_result(node, 0, data.dtype(), data.shape());
  set_result(node, 1, DType::boolean, data.shape());
}

// Whether the ratio is known to be below 1.
bool scales_finitely(const Node& node) {
  if (!has_operand(node, 1)) return true;
  const Value& ratio = *node.input(1);
  if (!ratio.is_fixed() || ratio.data.count() != 1) return false;
  if (ratio.dtype() == DType::float32) return ratio.data.as<float>()[0] < 1;
  return ratio.dtype() == DType::float64 && ratio.data.as<double>()[0] < 1;
}

Rule keyed_dropout_rule(const Node& node) {
  Rule rule = blank_rule(node);
  const Shape& shape = operand(node, 0).shape();
  for (size_t d = 0; d < shape.size(); ++d)
    if (!shape[d].is(1)) rule.operands[0][d] = {rule.add(factor_name(d), shape[d])};
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) rule.results[r] = rule.operands[0];
  // Kept elements are scaled by a positive number if it is known to be finite. The mask does not depend on the data.
  if (!node.output(1) && scales_finitely(node)) rule.partial(Reduction::sum, {0});
  return rule;
}

std::vector<Value*> localize_dropout(Localizer& local) {
  return placed(local, kDropoutCounter + 1);
}

// --- RandomUniform, RandomNormal

constexpr size_t kFillingCounter = 1;

void infer_filling(Node& node) {
  const Value& list = operand(node, 0);
  if (list.rank() != 1) fail_node(node, "its shape operand has rank {}; it must be a list", list.rank());
  require_place(node, kFillingCounter);
  const auto dtype = static_cast<DType>(node.get_int("dtype", static_cast<int64_t>(DType::float32)));
  if (!is_float(dtype) || bits_of(dtype) < 16)
    fail_node(node, "its result is {}; it must be float16, bfloat16, float32 or float64", name_of(dtype));
  const auto target = content_of(&list);
  set_result(node, 0, dtype, target ? *target : declared_shape(node, 0, "shape"));
}

Rule filling_rule(const Node& node) {
  Rule rule = blank_rule(node);
  const Shape& shape = node.output()->shape();
  for (size_t d = 0; d < shape.size(); ++d)
    if (!shape[d].is(1)) rule.results[0][d] = {rule.add(factor_name(d), shape[d])};
  return rule;
}

std::vector<Value*> localize_filling(Localizer& local) {
  local.inputs[0] = local.graph.add_expression(local.node.output()->name + "_shape", *local.outputs[0].shape);
  return placed(local, kFillingCounter + 1);
}

std::vector<Example> dropout_examples(std::string_view) {
  using namespace example;
  const auto key = [](int64_t value) { return Attribute{"key", value}; };
  return {
      {"with the usual ratio", {input("6 4")}, {key(3)}},
      {"with its mask",
       {input("6 5 4"), number(0.25F), left_out(), input("", small, DType::int64)},
       {key(-7)},
       none,
       2},
      {"of 16-bit floats, not training",
       {input("6 4", reals, DType::bfloat16), number(0.3F), boolean(false)},
       {key(3)},
       none,
       2},
  };
}

std::vector<Example> filling_examples(std::string_view) {
  using namespace example;
  std::vector<Example> all;
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16})
    all.push_back({std::string(name_of(dtype)),
                   {ints({6, 5, 4}), input("", small, DType::int64)},
                   {{"key", int64_t{11}}, {"dtype", static_cast<int64_t>(dtype)}}});
  return all;
}

}  // namespace

std::vector<OpDef> random_ops() {
  std::vector<OpDef> ops = {{.type = "Dropout",
                             .domain = kRandomDomain,
                             .infer = infer_keyed_dropout,
                             .rule = keyed_dropout_rule,
                             .localize = localize_dropout,
                             .gradient = keyed_dropout_gradient,
                             .pass_through = true,
                             .always_float32 = {1},
                             .counter = kDropoutCounter,
                             .examples = dropout_examples}};
  for (const std::string_view type : {"RandomUniform", "RandomNormal"})
    ops.push_back({.type = type,
                   .domain = kRandomDomain,
                   .infer = infer_filling,
                   .rule = filling_rule,
                   .localize = localize_filling,
                   .no_gradient = "it reads no element that trains",
                   .values = {0},
                   .counter = kFillingCounter,
                   .examples = filling_examples});
  return ops;
}

}  // namespace tessera::ops
