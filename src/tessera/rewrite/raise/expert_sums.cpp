#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "tessera/io/mapped_file.h"
#include "tessera/ir/hash.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ops/library/finite.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/match.h"
#include "tessera/rewrite/raise/match_experts.h"

// A sum over experts, each with parameters of its own, which computes all tokens and is multiplied by its weights:
//
//   Σe  w2_e (act (w1_e (x))) · [tokens…, 1]     with the weights of Slice (matrix, e), or Σc [choices = e] · weights
//   → Experts (x, choices, weights, stack of w1_e, stack of w2_e)
//
// Parameters may be rows of stacks, w1_e = Gather (w1, e), as in loops over experts (regions/open_regions.cpp unrolls
// them); then w1 is the stack. Else a stack is a new state. Its elements stay in the parameters until a rank takes its
// part of them, so that memory does not hold them twice. Parameters that change, or that another node reads, are not
// stacked. Other terms of the sum are added afterwards.
namespace tessera::rewrite {
namespace {

/// An expert's own parameter, or its part of a stack of all.
struct Parameter {
  Value* value = nullptr;
  Value* stack = nullptr;  ///< [experts, …]; null: the value is a parameter of its own
  int64_t row = 0;         ///< of the stack

  explicit operator bool() const { return value != nullptr; }
};

/// x · matrix + bias, with parameters.
struct Linear {
  Value* x = nullptr;
  Parameter matrix, bias;
  bool turned = false;  ///< the matrix is [columns, x's elements]
};

bool is_stackable(const Graph& graph, const Value* value) {
  return value->kind == ValueKind::state && !value->changing && !value->next && !value->origin &&
         value->uses.size() == 1 && !graph.is_output(value) && (value->data.data || maker_of(value->data)) &&
         bits_of(value->dtype()) % 8 == 0;
}

/// One row along the first dimension: Gather by one index, Slice or Split of one, and changes of shape behind them.
std::optional<Parameter> row_of_stack(Value* value) {
  const Value* row = without_reshapes(value);
  const Node* node = row->producer;
  if (!node || !(node->is("Gather") || node->is("Slice") || node->is("Split"))) return std::nullopt;
  Value* stack = node->inputs[0];
  const Shape& shape = stack->shape();
  if (shape.empty() || value->shape() != Shape(shape.begin() + 1, shape.end())) return std::nullopt;
  const auto rows = shape[0].constant();
  std::optional<int64_t> at;
  if (node->is("Slice")) {
    if (const auto range = slice_of(*node); range && range->axis == 0 && range->end == range->start + 1)
      at = range->start;
  } else if (axis_of(*node, "axis", 0, shape.size()) != 0) {
    return std::nullopt;
  } else if (node->is("Gather")) {
    if (const auto index = numbers(node->inputs[1]); index && index->size() == 1) at = index->front();
    if (at && rows && *at < 0) *at += *rows;
  } else if (row->shape()[0].is(1) && rows == static_cast<int64_t>(node->outputs.size())) {
    at = std::find(node->outputs.begin(), node->outputs.end(), row) - node->outputs.begin();
  }
  return at ? std::optional(Parameter{value, stack, *at}) : std::nullopt;
}

std::optional<Parameter> parameter(const Graph& graph, Value* value) {
  if (is_stackable(graph, value)) return Parameter{value};
  return row_of_stack(value);
}

std::optional<Linear> linear(const Graph& graph, Value* value) {
  Linear found;
  if (Node* sum = made_by(value, "Add"))
    for (size_t i : {0, 1}) {
      const auto bias = sum->inputs[i]->rank() == 1 ? parameter(graph, sum->inputs[i]) : std::nullopt;
      if (!bias) continue;
      found.bias = *bias;
      value = sum->inputs[1 - i];
      break;
    }
  const Node* node = value->producer;
  if (!node || !(node->is("MatMul") || node->is("Gemm"))) return std::nullopt;
  found.x = node->inputs[0];
  Value* matrix = node->inputs[1];
  if (node->is("Gemm")) {
    if (node->get_int("transA", 0) != 0 || node->get_float("alpha", 1) != 1 || node->get_float("beta", 1) != 1)
      return std::nullopt;
    found.turned = node->get_int("transB", 0) != 0;
    if (Value* added = node->input(2)) {
      const auto bias = added->rank() == 1 ? parameter(graph, added) : std::nullopt;
      if (found.bias || !bias) return std::nullopt;
      found.bias = *bias;
    }
  } else if (const Node* transpose = made_by(matrix, "Transpose"); transpose && transpose->inputs[0]->rank() == 2) {
    matrix = transpose->inputs[0];
    found.turned = true;
  }
  if (matrix->rank() != 2 || found.x->rank() < 2) return std::nullopt;
  const auto own = parameter(graph, matrix);
  if (!own) return std::nullopt;
  found.matrix = *own;
  if (found.bias && found.bias.value->shape()[0] != matrix->shape()[found.turned ? 0 : 1]) return std::nullopt;
  return found;
}

struct Expert {
  RoutingColumn at;
  HiddenUnit unit;
  Linear gate, down;
  std::optional<Linear> up;

  /// Whether both differ only in the elements of their parameters.
  bool is_like(const Expert& other) const {
    const auto of_one_kind = [](const Parameter& a, const Parameter& b) {
      return !a == !b && a.stack == b.stack && (!a || a.value->type == b.value->type);
    };
    const auto alike = [&](const Linear& a, const Linear& b) {
      return a.turned == b.turned && of_one_kind(a.matrix, b.matrix) && of_one_kind(a.bias, b.bias);
    };
    const auto same = [](const Attribute& a, const Attribute& b) {
      if (a.name != b.name || a.value.index() != b.value.index()) return false;
      if (const auto* number = std::get_if<float>(&a.value)) return *number == std::get<float>(b.value);
      const auto* text = std::get_if<std::string>(&a.value);
      return text && *text == std::get<std::string>(b.value);
    };
    return at.routing == other.at.routing && gate.x == other.gate.x && alike(gate, other.gate) &&
           alike(down, other.down) && up.has_value() == other.up.has_value() && (!up || alike(*up, *other.up)) &&
           std::equal(unit.attributes.begin(), unit.attributes.end(), other.unit.attributes.begin(),
                      other.unit.attributes.end(), same);
  }
};

/// The extents of all dimensions but the last.
Shape tokens_of(const Value& value) {
  return {value.shape().begin(), value.shape().end() - 1};
}

std::optional<Expert> expert(const Graph& graph, Value* term) {
  const Node* product = used_once(graph, term) ? made_by(term, "Mul") : nullptr;
  if (!product) return std::nullopt;
  for (size_t i : {0, 1}) {
    const auto at = routing_of_column(product->inputs[1 - i]);
    const auto down = at ? linear(graph, product->inputs[i]) : std::nullopt;
    const auto unit = down ? hidden_unit(graph, down->x) : std::nullopt;
    const auto gate = unit ? linear(graph, unit->gate) : std::nullopt;
    if (!gate) continue;
    Expert found{*at, *unit, *gate, *down, std::nullopt};
    if (unit->up) {
      found.up = linear(graph, unit->up);
      if (!found.up || found.up->x != gate->x) continue;
    }
    const auto is_of_this = [&](const Parameter& each) { return !each.stack || each.row == at->expert; };
    const auto has_own = [&](const Linear& each) { return is_of_this(each.matrix) && is_of_this(each.bias); };
    if (!has_own(*gate) || !has_own(*down) || (found.up && !has_own(*found.up))) continue;
    const Shape tokens = tokens_of(*at->routing.choices);
    if (tokens_of(*gate->x) != tokens || tokens_of(*product->inputs[1 - i]) != tokens) continue;
    if (!used_only_between(graph, gate->x, term, {product->inputs[1 - i]})) continue;
    return found;
  }
  return std::nullopt;
}

/// Tensors of one type, stacked along a new first dimension.
class Stack : public ElementMaker {
 public:
  explicit Stack(std::vector<Tensor> pieces) : pieces_(std::move(pieces)), each_(pieces_.front().count()) {}

  void make(int64_t first, int64_t count, std::byte* to) const override {
    const auto element = static_cast<int64_t>(bits_of(pieces_.front().dtype) / 8);
    while (count > 0) {
      const Tensor& piece = pieces_[static_cast<size_t>(first / each_)];
      const int64_t at = first % each_, run = std::min(count, each_ - at);
      if (const ElementMaker* maker = maker_of(piece))
        maker->make(at, run, to);
      else
        std::memcpy(to, piece.data + at * element, static_cast<size_t>(run * element));
      first += run;
      count -= run;
      to += run * element;
    }
  }

  void let_go(int64_t first, int64_t count) const override {
    while (count > 0) {
      const int64_t at = first % each_, run = std::min(count, each_ - at);
      MappedFile::let_go(pieces_[static_cast<size_t>(first / each_)], at, run);
      first += run;
      count -= run;
    }
  }

  std::optional<uint64_t> identity() const override {
    Hash identity;
    identity.add("stack");
    for (const Tensor& piece : pieces_) {
      identity.add_type(piece);
      identity.add(origin_of(piece));
    }
    return identity.value();
  }

  void add_sources(int64_t first, int64_t count, std::vector<SourceRange>& sources) const override {
    while (count > 0) {
      const int64_t at = first % each_, run = std::min(count, each_ - at);
      add_sources_of(pieces_[static_cast<size_t>(first / each_)], at, run, sources);
      first += run;
      count -= run;
    }
  }

 private:
  std::vector<Tensor> pieces_;
  int64_t each_;
};

/// "experts.#.w1" for "experts.0.w1" and "experts.1.w1". The mark is not a wildcard, which would match these, too.
std::string common_name(const std::vector<Value*>& pieces) {
  const std::string& first = pieces.front()->name;
  size_t front = first.size(), back = first.size();
  for (const Value* piece : pieces) {
    const std::string& name = piece->name;
    size_t same = 0;
    while (same < std::min(front, name.size()) && name[same] == first[same]) ++same;
    front = same;
    same = 0;
    while (same < std::min(back, name.size()) && name[name.size() - 1 - same] == first[first.size() - 1 - same]) ++same;
    back = same;
  }
  back = std::min(back, first.size() - std::min(front, first.size()));
  return first.substr(0, front).append(kStackMark) + first.substr(first.size() - back);
}

/// The stack of all experts' parameters.
Value* stacked(Graph& graph, const std::vector<Parameter>& parameters) {
  if (parameters.front().stack) return parameters.front().stack;
  std::vector<Value*> pieces;
  for (const Parameter& each : parameters) pieces.push_back(each.value);
  std::vector<Tensor> data;
  for (const Value* piece : pieces) data.push_back(piece->data);
  Dims dims = data.front().dims;
  dims.insert(dims.begin(), static_cast<int64_t>(data.size()));
  const DType dtype = data.front().dtype;
  Value* stack = graph.add_state(common_name(pieces), on_demand(dtype, dims, std::make_shared<Stack>(std::move(data))));
  for (const Value* piece : pieces) stack->rows.push_back(piece->name);
  return stack;
}

/// The terms of a sum through sums that nothing else uses.
void collect_terms(const Graph& graph, Value* value, bool open, std::vector<Value*>& terms) {
  Node* sum = open || used_once(graph, value) ? made_by(value, "Add") : nullptr;
  if (!sum || sum->inputs[0]->shape() != value->shape()) {
    // The zero that a loop begins with may be a scalar.
    if (!sum || !is_scalar(sum->inputs[0], 0) || sum->inputs[1]->shape() != value->shape()) {
      terms.push_back(value);
      return;
    }
  }
  collect_terms(graph, sum->inputs[0], false, terms);
  collect_terms(graph, sum->inputs[1], false, terms);
}

Value* mixture(Graph& graph, const std::vector<Expert>& experts, const Node* before, const std::string& name) {
  const auto all = [&](auto part) {
    std::vector<Parameter> parameters;
    for (const Expert& each : experts) parameters.push_back(part(each));
    return stacked(graph, parameters);
  };
  const auto matrices = [&](auto part) {
    Value* stack = all([&](const Expert& each) { return part(each).matrix; });
    return part(experts.front()).turned ? transposed(graph, stack, {0, 2, 1}, before) : stack;
  };
  const auto biases = [&](auto part) -> Value* {
    return part(experts.front()).bias ? all([&](const Expert& each) { return part(each).bias; }) : nullptr;
  };
  const auto gate = [](const Expert& each) -> const Linear& { return each.gate; };
  const auto down = [](const Expert& each) -> const Linear& { return each.down; };
  const auto up = [](const Expert& each) -> const Linear& { return *each.up; };
  const Expert& first = experts.front();
  const Shape tokens = tokens_of(*first.gate.x);
  const auto flat = [&](Value* value) {
    return reshaped(graph, value, {product(tokens), value->shape().back()}, before);
  };
  std::vector<Value*> operands(ExpertsOperand::offset);
  operands[ExpertsOperand::tokens] = flat(first.gate.x);
  operands[ExpertsOperand::choices] = flat(first.at.routing.choices);
  operands[ExpertsOperand::weights] = flat(first.at.routing.weights);
  operands[ExpertsOperand::gate] = matrices(gate);
  operands[ExpertsOperand::gate_bias] = biases(gate);
  operands[ExpertsOperand::down] = matrices(down);
  operands[ExpertsOperand::down_bias] = biases(down);
  if (first.up) {
    operands[ExpertsOperand::up] = matrices(up);
    operands[ExpertsOperand::up_bias] = biases(up);
  }
  Value* y = emit_experts(graph, operands, first.unit.attributes, before, name);
  Shape shape = tokens;
  if (y) shape.push_back(y->shape().back());
  return y ? reshaped(graph, y, shape, before) : nullptr;
}

bool raise_sum(Graph& graph, Node* sum) {
  const Node* user = only_user(graph, sum->outputs[0]);
  if (user && user->is("Add")) return false;  // it is a term of a longer sum
  std::vector<Value*> terms, others;
  collect_terms(graph, sum->outputs[0], true, terms);
  std::map<int64_t, Expert> experts;
  for (Value* term : terms) {
    auto found = expert(graph, term);
    if (found && (experts.empty() || found->is_like(experts.begin()->second)) &&
        experts.try_emplace(found->at.expert, *found).second)
      continue;
    others.push_back(term);
  }
  if (experts.size() < 2) return false;
  // Every expert must be a term.
  const Expert& like = experts.begin()->second;
  if (experts.begin()->first != 0 || experts.rbegin()->first + 1 != static_cast<int64_t>(experts.size()) ||
      static_cast<int64_t>(experts.size()) != like.at.routing.experts)
    return false;
  const DType dtype = like.gate.x->dtype();
  if (like.at.routing.weights->dtype() != dtype || like.gate.matrix.value->dtype() != dtype) return false;
  std::vector<Expert> in_order;
  for (const auto& [number, each] : experts) in_order.push_back(each);
  std::erase_if(others, ops::are_zeros);  // looks through all elements, and so comes last
  Value* result = sum->outputs[0];
  Value* y = mixture(graph, in_order, sum, result->name + ".experts");
  if (!y) return false;
  for (Value* other : others) y = emit(graph, "Add", {other, y}, sum);
  return y->shape() == result->shape() && replace(graph, result, y);
}

}  // namespace

void raise_expert_sums(OnnxModel& model) {
  Graph& graph = *model.graph;
  std::set<const Value*> unread;  // before this pass; these stay
  for (const Value* state : graph.values_of(ValueKind::state))
    if (state->uses.empty()) unread.insert(state);
  bool any = false;
  for (Node* node : nodes_of(graph))
    if (node->is("Add")) any |= raise_sum(graph, node);
  if (!any) return;
  graph.erase_dead();
  for (Value* state : graph.values_of(ValueKind::state))
    if (state->uses.empty() && !graph.is_output(state) && !unread.contains(state)) graph.erase(state);
}

}  // namespace tessera::rewrite
