#include <optional>

#include "property/cases.h"
#include "tessera/ir/flow.h"

// Branches and loops, opened (ir/flow.h). They are graphs of their own rather than examples in records, because an
// iteration is many nodes: those that begin and end it, and what they carry between them.
namespace tessera::property {
namespace {

Value* flow_node(Builder& b, std::string_view type, std::vector<Value*> operands,
                 std::vector<Attribute> attributes = {}) {
  return b.node(type, std::move(operands), std::move(attributes), flow::kDomain);
}

// The end of an iteration that leaves `next` as the values of `carried`; gives the token of the end.
Value* end_of(Builder& b, Value* iteration, Value* condition, const std::vector<std::pair<Value*, Value*>>& carried) {
  std::vector<Value*> operands{iteration, condition};
  for (const auto& [value, next] : carried)
    operands.push_back(b.node_of(2, "Next", {next, iteration, value}, {}, flow::kDomain)->outputs[1]);
  return flow_node(b, "Again", operands);
}

Value* last(Builder& b, Value* carried, Value* end) {
  return flow_node(b, "Last", {carried, end});
}

// h = h·W mod 5 + x, n times; rows of h.
Subject recurrence(std::string_view name, bool fixed, bool reverse) {
  Builder b{std::string(name)};
  Value *x = b.input("3 4 6"), *w = b.weight("6 6", Fill::small), *start = b.input("4 6");
  Value* trips = fixed ? b.integer(3) : b.indices("", 3, 4);
  const std::vector<Attribute> order =
      reverse ? std::vector<Attribute>{{"reverse", int64_t{1}}} : std::vector<Attribute>{};
  Value* iteration = flow_node(b, "Loop", {trips});
  Value* h = flow_node(b, "Carry", {start, iteration});
  Value* row = flow_node(b, "Item", {x, iteration}, order);
  Value* product = b.node("Mod", {b.node("MatMul", {h, w}), b.number(5)}, {{"fmod", int64_t{1}}});
  Value* sum = b.node("Add", {product, row});
  Value* end = end_of(b, iteration, nullptr, {{h, sum}});
  b.output(last(b, h, end));
  if (fixed) b.output(flow_node(b, "Stack", {sum, end}, order));
  return b.done();
}

// While the sum of v is below a limit, and at most 40 times, v = v + v; counts.
Subject doubling() {
  Builder b("Loop: as long as a computed condition holds");
  Value *start = b.input("5 6", Fill::positive), *one = b.integer(1);
  Value* iteration = flow_node(b, "Loop", {b.integer(40)});
  Value *v = flow_node(b, "Carry", {start, iteration}), *count = flow_node(b, "Carry", {b.integer(0), iteration});
  Value* twice = b.node("Add", {v, v});
  Value* sum = b.node("ReduceSum", {twice}, {{"keepdims", int64_t{0}}});
  Value* goes_on = b.node("Less", {sum, b.number(3000)});
  Value* counted = b.node("Add", {count, one});
  Value* end = end_of(b, iteration, goes_on, {{v, twice}, {count, counted}});
  b.output(last(b, v, end));
  b.output(last(b, count, end));
  return b.done();
}

// a, b = b, a + b: what is carried changes places.
Subject exchange() {
  Builder b("Loop: carried values change places");
  Value *first = b.input("4 6", Fill::small), *second = b.input("4 6", Fill::small);
  Value* iteration = flow_node(b, "Loop", {b.integer(7)});
  Value *a = flow_node(b, "Carry", {first, iteration}), *c = flow_node(b, "Carry", {second, iteration});
  Value* sum = b.node("Add", {a, c});
  Value* end = end_of(b, iteration, nullptr, {{a, c}, {c, sum}});
  b.output(last(b, a, end));
  b.output(last(b, c, end));
  return b.done();
}

// No iteration: what is carried is as it began.
Subject no_iteration() {
  Builder b("Loop: without an iteration");
  Value *start = b.input("4 6"), *w = b.weight("6 6");
  Value* iteration = flow_node(b, "Loop", {b.indices("", 0, 1)});
  Value* h = flow_node(b, "Carry", {start, iteration});
  Value* end = end_of(b, iteration, nullptr, {{h, b.node("MatMul", {h, w})}});
  b.output(b.node("Neg", {last(b, h, end)}));
  return b.done();
}

// A product with a split contraction in one branch, a maximum over all in the other. The condition is known, or that
// fewer elements of x than a limit are large.
Subject branches(std::string_view name, std::optional<bool> known, double limit = 0) {
  Builder b{std::string(name)};
  Value *x = b.input("4 6", Fill::positive), *w = b.weight("6 6");
  const auto computed = [&] {
    const Attribute to_float{"to", static_cast<int64_t>(DType::float32)};
    Value* large = b.node("Cast", {b.node("Greater", {x, b.number(4)})}, {to_float});
    return b.node("Less", {b.node("ReduceSum", {large}, {{"keepdims", int64_t{0}}}), b.number(limit)});
  };
  Value* condition = known ? b.number(*known ? 1 : 0, DType::boolean) : computed();
  Value* then = flow_node(b, "Branch", {condition}, {{"taken", int64_t{1}}});
  Value* product = b.node("MatMul", {flow_node(b, "Bring", {x, then}), w});
  Value* other = flow_node(b, "Branch", {condition}, {{"taken", int64_t{0}}});
  Value* brought = flow_node(b, "Bring", {x, other});
  Value* raised = b.node("Add", {brought, b.node("ReduceMax", {brought, b.ints({1})})});
  Value* join = flow_node(b, "Join", {then, other});
  b.output(flow_node(b, "Choose", {product, raised, join}));
  return b.done();
}

}  // namespace

std::vector<Subject> flow_cases() {
  std::vector<Subject> cases;
  cases.push_back(recurrence("Loop: with rows in and out", true, false));
  cases.push_back(recurrence("Loop: with rows from the end", true, true));
  cases.push_back(recurrence("Loop: with a trip count that a run gives", false, false));
  cases.push_back(doubling());
  cases.push_back(exchange());
  cases.push_back(no_iteration());
  cases.push_back(branches("Branch: the first", true));
  cases.push_back(branches("Branch: the second", false));
  cases.push_back(branches("Branch: the first, by a count", std::nullopt, 1e6));
  cases.push_back(branches("Branch: the second, by a count", std::nullopt));
  return cases;
}

}  // namespace tessera::property
