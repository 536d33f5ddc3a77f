#include "property/cases.h"
#include "random/writer.h"
#include "tessera/ir/flow.h"

namespace tessera::random {
namespace {

/// The cases of the property tests, a few nodes each: of all operators, in branches and loops, too. Results of 16 bits
/// that are not exact are left out, since the tolerance is that of float32.
const std::vector<property::Subject>& subjects() {
  static const std::vector<property::Subject> all = [] {
    std::vector<property::Subject> list;
    for (property::Subject& subject : property::all_cases())
      if (subject.bound.relative <= property::kChain.relative) list.push_back(std::move(subject));
    return list;
  }();
  return all;
}

/// The elements of x that fill these extents, between -8 and 8; null if x has too few.
Value* cut_to(Writer& w, Value* x, const Dims& dims) {
  const int64_t count = count_of(dims);
  if (count_of(w.dims(x)) < count || count == 0) return nullptr;
  Facts facts = w.facts(x);
  auto then = [&](std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes) {
    Node* node = x ? w.node(type, std::move(operands), std::move(attributes), facts) : nullptr;
    x = node ? node->outputs[0] : nullptr;
  };
  then("Reshape", {x, w.ints({-1})}, {});
  then("Slice", {x, w.ints({0}), w.ints({count})}, {});
  then("Reshape", {x, w.ints(dims)}, {});
  facts.bound = 8;
  Graph& graph = w.graph();
  then("Clip", {x, graph.constant_scalar(DType::float32, -8), graph.constant_scalar(DType::float32, 8)}, {});
  return x;
}

/// The first operand that is any numbers, in whose place others may stand.
const Value* replaceable(const property::Subject& subject) {
  if (flow::has_flow(*subject.graph)) return nullptr;
  const auto& nodes = subject.graph->nodes();
  if (nodes.size() != 1) return nullptr;
  const Value* first = nodes[0]->input(0);
  const bool fits = first && first->kind == ValueKind::input && first->dtype() == DType::float32 && first->rank() > 0 &&
                    first->uses.size() == 1;
  return fits ? first : nullptr;
}

bool known_case(Writer& w) {
  const property::Subject& subject = w.one_of(subjects());
  std::map<const Value*, Value*> known = {{nullptr, nullptr}};
  if (const Value* first = replaceable(subject); first && !w.has_specials() && w.one_in(2)) {
    Value* other = w.pick([&](const Value* v) { return v->dtype() == DType::float32 && w.facts(v).exact; });
    if (Value* cut = other ? cut_to(w, other, subject.dims_of(first)) : nullptr) known[first] = cut;
  }
  for (const auto& value : subject.graph->values()) {
    if (known.contains(value.get()) || value->kind == ValueKind::result) continue;
    if (value->kind == ValueKind::expression) {
      std::vector<int64_t> elements;
      for (const Expr& element : *value->content) elements.push_back(element.evaluate(subject.symbols));
      known[value.get()] = w.graph().constant_int64(elements, value->rank() == 0);
    } else if (value->kind == ValueKind::constant) {
      known[value.get()] = w.graph().add_constant("", value->data);
    } else {
      const auto given = subject.inputs.find(value->name);
      known[value.get()] = w.given(given == subject.inputs.end() ? value->data : given->second,
                                   !value->data.dims.empty() && value->kind == ValueKind::state);
    }
  }
  for (const auto& node : subject.graph->nodes()) {
    std::vector<Value*> operands;
    for (const Value* operand : node->inputs) operands.push_back(known.at(operand));
    if (!w.copy(*node, operands, known)) return false;
  }
  for (const Value* output : subject.graph->outputs) w.offer(known.at(output), {0x1p16, false});
  return true;
}

}  // namespace

std::vector<Addition> case_additions() {
  return std::vector<Addition>(10, known_case);
}

}  // namespace tessera::random
