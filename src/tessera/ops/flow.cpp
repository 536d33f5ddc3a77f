#include "tessera/ir/flow.h"

#include <algorithm>
#include <set>

#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/one_program.h"
#include "tessera/ops/registry.h"

// The nodes that delimit branches and bodies of loops (ir/flow.h). Each carries one value, so that each value is laid
// out on its own; the rule of a Next ties what an iteration gets to what it gives, so that a carried value has one
// layout.
namespace tessera::ops {
namespace {

void require_scalar(const Node& node, size_t index, DType dtype, std::string_view what) {
  const Value* value = node.input(index);
  if (!value) return;
  const bool one = value->has_shape() && product(value->shape()).is(1) && value->rank() <= 1;
  if (value->dtype() != dtype || !one)
    fail_node(node, "{}, '{}', is {}{}; it must be one {}", what, value->name, name_of(value->dtype()),
              value->has_shape() ? to_string(value->shape()) : " of unknown shape", name_of(dtype));
}

void infer_loop(Node& node) {
  require_scalar(node, 0, DType::int64, "its trip count");
  require_scalar(node, 1, DType::boolean, "its condition");
  set_result(node, 0, DType::int64, {});
}

void infer_branch(Node& node) {
  require_scalar(node, 0, DType::boolean, "its condition");
  set_result(node, 0, DType::boolean, {});
}

void infer_same(Node& node) {
  set_result(node, 0, operand(node, 0).dtype(), shape_of(node, 0));
}

void infer_bring(Node& node) {
  set_result(node, 0, operand(node, 0).dtype(), shape_of(node, 0), content_of(node.input(0)));
}

void infer_item(Node& node) {
  Shape shape = shape_of(node, 0);
  if (shape.empty()) fail_node(node, "'{}' has no dimension along which it could be split", node.input(0)->name);
  shape.erase(shape.begin());
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

// Whether two extents are equal in every run, or may be symbols that the model's author gave to one size: expressions
// of the same symbols are not.
bool may_be_one(const Expr& a, const Expr& b) {
  if (a == b) return true;
  std::set<std::string> in_a, in_b;
  a.collect_symbols(in_a);
  b.collect_symbols(in_b);
  const auto is_shared = [&](const std::string& symbol) { return in_b.contains(symbol); };
  const bool local = depends_on_rank(a) || depends_on_rank(b);  // a rank's extents may be written in two ways
  return same_extent(a, b) && (local || std::none_of(in_a.begin(), in_a.end(), is_shared));
}

using MayBeEqual = bool (*)(const Expr&, const Expr&);

bool fit(const Value& a, const Value& b, MayBeEqual may_be_equal) {
  return a.dtype() == b.dtype() && a.rank() == b.rank() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), may_be_equal);
}

// Whether an If's condition is an input of the model. Whoever gives it chooses sizes that fit: a decoder that is told
// whether there is a past.
bool is_given(const Value* condition) {
  while (condition && condition->producer &&
         (condition->producer->is("Identity") || condition->producer->is("Cast") ||
          condition->producer->is("Reshape") || condition->producer->is("Squeeze")))
    condition = condition->producer->inputs[0];
  return condition && condition->kind == ValueKind::input;
}

std::string described(const Value& value) {
  return fmt::format("{}{}", name_of(value.dtype()), to_string(value.shape()));
}

void infer_next(Node& node) {
  const Value &value = operand(node, 0), &carried = operand(node, 2);
  if (!fit(value, carried, may_be_one))
    throw NotInOneProgram(
        "shape", node,
        fmt::format("an iteration gets '{}' as {} and gives '{}' as {}; in a program, a carried value keeps its "
                    "type and extents, unless the trip count is known and small enough to unroll the loop",
                    carried.name, described(carried), value.name, described(value)));
  set_result(node, 0, carried.dtype(), carried.shape());
  set_result(node, 1, DType::boolean, {});
}

void infer_again(Node& node) {
  require_scalar(node, 1, DType::boolean, "the condition that an iteration computes");
  set_result(node, 0, DType::int64, {});
}

void infer_stack(Node& node) {
  const Node* again = operand(node, 1).producer;
  const Node* loop = again && again->input(0) ? again->input(0)->producer : nullptr;
  if (!loop) fail_node(node, "it is not at the end of a loop");
  const auto trips = content_of(loop->input(0));
  if (!trips || loop->input(1) || again->input(1))
    throw NotInOneProgram(
        "shape", node,
        fmt::format("its scan output '{}' has a row per iteration, and their number depends on data ({}); for a "
                    "program, give the loop a trip count that follows from shapes and the condition true, or "
                    "carry a tensor of fixed size and write the rows into it (ScatterND)",
                    node.output() ? node.output()->name : "",
                    trips ? "its condition is computed" : "its trip count is computed"));
  Shape shape = shape_of(node, 0);
  shape.insert(shape.begin(), trips->front());
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

void infer_join(Node& node) {
  set_result(node, 0, DType::boolean, {});
}

void infer_choose(Node& node) {
  const Value &taken = operand(node, 0), &other = operand(node, 1);
  const Node* join = operand(node, 2).producer;
  const Node* branch = join && join->input(0) ? join->input(0)->producer : nullptr;
  const MayBeEqual may_be_equal = branch && is_given(branch->input(0))
                                      ? [](const Expr& a, const Expr& b) { return same_extent(a, b).has_value(); }
                                      : may_be_one;
  if (!fit(taken, other, may_be_equal))
    throw NotInOneProgram(
        "shape", node,
        fmt::format("its branches give '{}' as {} and {}; in a program, both must give one type and equal "
                    "extents, unless the condition is known before the run",
                    node.output() ? node.output()->name : "", described(taken), described(other)));
  set_result(node, 0, taken.dtype(), taken.shape());
}

// The first `skipped` dimensions of operand 0 stay whole, and the others run through the operands `tied`, too, and
// through result 0 after its first `added` dimensions.
Rule pass_rule(const Node& node, size_t skipped, const std::vector<size_t>& tied, size_t added) {
  Rule rule = blank_rule(node);
  const Shape& shape = shape_of(node, 0);
  for (size_t d = skipped; d < shape.size(); ++d) {
    if (shape[d].is(1)) continue;
    const DimFactors factors{rule.add(factor_name(d - skipped), shape[d])};
    rule.operands[0][d] = factors;
    for (size_t other : tied) rule.operands[other][d] = factors;
    if (node.output()) rule.results[0][d - skipped + added] = factors;
  }
  return rule;
}

Rule same_rule(const Node& node) {
  return pass_rule(node, 0, {}, 0);
}
Rule item_rule(const Node& node) {
  return pass_rule(node, 1, {}, 0);
}
Rule next_rule(const Node& node) {
  return pass_rule(node, 0, {2}, 0);
}
Rule stack_rule(const Node& node) {
  return pass_rule(node, 0, {}, 1);
}
Rule choose_rule(const Node& node) {
  return pass_rule(node, 0, {1}, 0);
}

}  // namespace

std::vector<OpDef> flow_ops() {
  constexpr std::string_view domain = flow::kDomain;
  std::vector<OpDef> ops = {
      {.type = "Loop", .domain = domain, .infer = infer_loop, .rule = blank_rule},
      {.type = "Carry", .domain = domain, .infer = infer_same, .rule = same_rule, .pass_through = true},
      {.type = "Item", .domain = domain, .infer = infer_item, .rule = item_rule, .pass_through = true},
      {.type = "Next",
       .domain = domain,
       .infer = infer_next,
       .rule = next_rule,
       .pass_through = true,
       .made_of = {{}, {1}}},
      {.type = "Again", .domain = domain, .infer = infer_again, .rule = blank_rule},
      {.type = "Last", .domain = domain, .infer = infer_same, .rule = same_rule, .pass_through = true},
      {.type = "Stack", .domain = domain, .infer = infer_stack, .rule = stack_rule, .pass_through = true},
      {.type = "Branch", .domain = domain, .infer = infer_branch, .rule = blank_rule},
      {.type = "Bring", .domain = domain, .infer = infer_bring, .rule = same_rule, .pass_through = true},
      {.type = "Join", .domain = domain, .infer = infer_join, .rule = blank_rule},
      {.type = "Choose", .domain = domain, .infer = infer_choose, .rule = choose_rule, .pass_through = true},
  };
  for (OpDef& op : ops) op.no_gradient = "gradients of loops and branches are not taken";
  return ops;
}

}  // namespace tessera::ops
