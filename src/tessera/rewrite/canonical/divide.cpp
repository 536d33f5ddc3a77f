#include "tessera/rewrite/canonical/divide.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/raise/match.h"

namespace tessera::rewrite {
namespace {

/// A node that is computed in pieces: the factor of its rule that is cut, and the extents of the pieces.
struct CutNode {
  ops::Rule rule;
  int factor = 0;
  std::vector<int64_t> sizes;
};

int64_t start_of(const Cut& cut, size_t piece) {
  int64_t start = 0;
  for (size_t i = 0; i < piece; ++i) start += cut.sizes[i];
  return start;
}

/// The number of elements of a dimension per element of its most major factor, which must be `factor`.
std::optional<int64_t> minor_of(const ops::Rule& rule, const ops::DimFactors& dim, int factor) {
  if (dim.empty() || dim.front() != factor || std::count(dim.begin(), dim.end(), factor) != 1) return std::nullopt;
  Expr minor = 1;
  for (size_t i = 1; i < dim.size(); ++i) minor = minor * rule.factors[dim[i]].size;
  return minor.constant();
}

/// Whether the node is a Concat of exactly the pieces.
bool joins(const Node& node, const Cut& cut) {
  if (!node.is("Concat") || node.inputs.size() != cut.sizes.size()) return false;
  if (axis_of(node, "axis", 0, node.outputs[0]->rank()) != static_cast<int64_t>(cut.dim)) return false;
  for (size_t i = 0; i < cut.sizes.size(); ++i)
    if (!node.inputs[i]->shape()[cut.dim].is(cut.sizes[i])) return false;
  return true;
}

/// For each result of a Split or a Slice, which piece of operand 0 it is; nullopt if one is not a piece.
std::optional<std::vector<size_t>> taken_by(const Node& node, const Cut& cut) {
  std::vector<size_t> taken;
  const auto take = [&](int64_t start, int64_t size) {
    for (size_t i = 0; i < cut.sizes.size(); ++i)
      if (start_of(cut, i) == start && cut.sizes[i] == size) return taken.push_back(i), true;
    return false;
  };
  if (const auto range = slice_of(node))
    return range->axis == cut.dim && take(range->start, range->end - range->start) ? std::optional(taken)
                                                                                   : std::nullopt;
  if (!node.is("Split") || axis_of(node, "axis", 0, node.inputs[0]->rank()) != static_cast<int64_t>(cut.dim))
    return std::nullopt;
  int64_t start = 0;
  for (const Value* result : node.outputs) {
    const auto size = result ? result->shape()[cut.dim].constant() : std::nullopt;
    if (!size || !take(start, *size)) return std::nullopt;
    start += *size;
  }
  return taken;
}

/// Elements [start, start + size) of a dimension. Whole rows share memory, columns are copied.
Tensor part_of(const Tensor& whole, size_t dim, int64_t start, int64_t size) {
  if (maker_of(whole)) return part_on_demand(whole, dim, start, size);
  const size_t element = static_cast<size_t>(bits_of(whole.dtype)) / 8;
  const size_t inner = static_cast<size_t>(count_of(std::span(whole.dims).subspan(dim + 1))) * element;
  const size_t outer = static_cast<size_t>(count_of(std::span(whole.dims).first(dim)));
  const size_t line = static_cast<size_t>(whole.dims[dim]) * inner, bytes = static_cast<size_t>(size) * inner;
  const std::byte* from = whole.data + static_cast<size_t>(start) * inner;
  Dims dims = whole.dims;
  dims[dim] = size;
  if (outer == 1) {
    Tensor part = whole;
    part.dims = dims;
    part.data = from;
    part.bytes = bytes;
    return part;
  }
  Tensor part = Tensor::zeros(whole.dtype, dims);
  for (size_t i = 0; i < outer; ++i) std::memcpy(part.mutable_data() + i * bytes, from + i * line, bytes);
  return part;
}

class Divider {
 public:
  explicit Divider(Graph& graph) : graph_(graph) {
    for (Value* state : graph.values_of(ValueKind::state))
      if (state->next) stepped_by_.emplace(state->next, state);
  }

  /// Finds all values and nodes that must be cut along with `whole`.
  bool plan(Value* whole, const Cut& cut) {
    if (!require(whole, cut)) return false;
    while (!waiting_.empty()) {
      Value* value = waiting_.back();
      waiting_.pop_back();
      if (!spread(value, cuts_.at(value))) return false;
    }
    return true;
  }

  void run() {
    std::vector<Value*> sources;
    for (const auto& value : graph_.values())
      if (!value->producer && cuts_.contains(value.get())) sources.push_back(value.get());
    for (Value* source : sources) pieces_[source] = pieces_of_source(source, cuts_.at(source));
    for (Node* node : nodes_of(graph_)) {
      if (auto planned = nodes_.find(node); planned != nodes_.end()) {
        compute(node, planned->second);
        continue;
      }
      if (auto cut = cuts_.find(node->output()); cut != cuts_.end())
        pieces_[node->output()] = node->inputs;  // a Concat
      if (auto cut = cuts_.find(node->input(0)); cut != cuts_.end())
        if (const auto taken = taken_by(*node, cut->second)) take(node, pieces_.at(cut->first), *taken);
    }
    step();
    join_outputs();
    graph_.sort();
    graph_.erase_dead();
    for (Value* source : sources)
      if (source->kind == ValueKind::state) graph_.erase(source);
  }

 private:
  // --- which values and nodes are cut

  bool require(Value* value, const Cut& cut) {
    auto [known, fresh] = cuts_.emplace(value, cut);
    if (!fresh) return known->second == cut;
    waiting_.push_back(value);
    order_.push_back(value);
    return true;
  }

  bool spread(Value* value, const Cut& cut) {
    if (!reach_back(value, cut)) return false;
    if (value->kind == ValueKind::constant || value->kind == ValueKind::input) return true;  // others may read it whole
    auto [first, last] = stepped_by_.equal_range(value);
    for (auto state = first; state != last; ++state)
      if (!require(state->second, cut)) return false;
    const std::vector<Use> uses = value->uses;
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return (use.index == 0 && taken_by(*use.node, cut)) || reach(*use.node, use.node->inputs, cut, use.index, false);
    });
  }

  bool reach_back(Value* value, const Cut& cut) {
    if (const Node* producer = value->producer) {
      if (joins(*producer, cut)) return true;
      const auto& results = producer->outputs;
      const auto at = std::find(results.begin(), results.end(), value) - results.begin();
      return reach(*producer, results, cut, static_cast<size_t>(at), true);
    }
    if (graph_.is_output(value)) return false;
    if (value->kind == ValueKind::input) return true;
    if (!value->has_data() || bits_of(value->dtype()) % 8 != 0) return false;
    return !value->next || require(value->next, cut);
  }

  /// Cuts a node along the factor of that dimension of an operand or result.
  bool reach(const Node& node, const std::vector<Value*>& values, const Cut& cut, size_t index, bool is_result) {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (!op || op->counter || !node.captures.empty()) return false;
    ops::Rule rule = op->rule(node);
    const auto& dims = (is_result ? rule.results : rule.operands).at(index);
    if (dims.size() <= cut.dim || dims[cut.dim].empty()) return false;
    const int factor = dims[cut.dim].front();
    const auto minor = minor_of(rule, dims[cut.dim], factor);
    if (!minor || *minor < 1) return false;
    std::vector<int64_t> sizes;
    for (int64_t size : cut.sizes) {
      if (size % *minor != 0) return false;
      sizes.push_back(size / *minor);
    }
    check(values[index] != nullptr, "a value that is cut is present");
    auto [known, fresh] = nodes_.try_emplace(&node);
    if (!fresh) return known->second.factor == factor && known->second.sizes == sizes;
    known->second = {std::move(rule), factor, std::move(sizes)};
    return require_all(node, known->second);
  }

  /// The values of a node that have its cut factor.
  bool require_all(const Node& node, const CutNode& cut) {
    const ops::FactorKind kind = cut.rule.factors[cut.factor].kind;
    const bool passes = kind == ops::FactorKind::pass;
    if (!passes && (kind != ops::FactorKind::reduction || node.outputs.size() != 1)) return false;
    const auto require_in = [&](const std::vector<Value*>& values, const auto& dims_of_all, bool everywhere) {
      for (size_t t = 0; t < values.size(); ++t) {
        if (!values[t]) continue;
        const auto places = places_of(cut, dims_of_all.at(t));
        if (!places || (everywhere && places->empty()) || places->size() > 1) return false;
        if (!places->empty() && !require(values[t], places->front())) return false;
      }
      return true;
    };
    return require_in(node.inputs, cut.rule.operands, false) && require_in(node.outputs, cut.rule.results, passes);
  }

  /// Where a node's cut factor is in a value, as cuts of the value; nullopt if it cannot be cut there.
  static std::optional<std::vector<Cut>> places_of(const CutNode& cut, const std::vector<ops::DimFactors>& dims) {
    std::vector<Cut> places;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (std::find(dims[d].begin(), dims[d].end(), cut.factor) == dims[d].end()) continue;
      const auto minor = minor_of(cut.rule, dims[d], cut.factor);
      if (!minor) return std::nullopt;
      Cut& place = places.emplace_back(Cut{d, cut.sizes});
      for (int64_t& size : place.sizes) size *= *minor;
    }
    return places;
  }

  // --- how they are computed in pieces

  static std::string piece_name(const Value* value, size_t piece) { return fmt::format("{}.{}", value->name, piece); }

  std::vector<Value*> pieces_of_source(Value* value, const Cut& cut) {
    std::vector<Value*> pieces;
    for (size_t i = 0; i < cut.sizes.size(); ++i) {
      const int64_t start = start_of(cut, i), size = cut.sizes[i];
      const std::string name = piece_name(value, i);
      if (value->kind == ValueKind::input) {
        const auto one = [&](int64_t number) { return graph_.constant_int64({number}); };
        pieces.push_back(emit(graph_, "Slice",
                              {value, one(start), one(start + size), one(static_cast<int64_t>(cut.dim))}, nullptr, {},
                              name));
      } else if (value->kind == ValueKind::constant) {
        pieces.push_back(graph_.add_constant(name, part_of(value->data, cut.dim, start, size)));
      } else {
        Value* piece = graph_.add_state(name, part_of(value->data, cut.dim, start, size));
        piece->changing = value->changing;
        piece->origin =
            value->origin ? *value->origin : StateOrigin{value->name, value->data.dims, Dims(value->rank(), 0)};
        piece->origin->begin[cut.dim] += start;
        pieces.push_back(piece);
      }
    }
    return pieces;
  }

  Value* piece_of(Value* value, size_t index) const {
    auto known = pieces_.find(value);
    return known == pieces_.end() ? value : known->second[index];
  }

  void compute(Node* node, const CutNode& cut) {
    const ops::Factor& factor = cut.rule.factors[cut.factor];
    std::vector<std::vector<Value*>> results(node->outputs.size());  // by result, by piece
    for (size_t i = 0; i < cut.sizes.size(); ++i) {
      std::vector<Value*> own = local_form(*node, cut, i);
      for (size_t t = 0; t < own.size(); ++t) {
        if (!node->outputs[t]) continue;
        graph_.rename(own[t], piece_name(node->outputs[t], i));
        results[t].push_back(own[t]);
      }
    }
    if (factor.kind == ops::FactorKind::reduction) {
      Value* all = results[0][0];
      for (size_t i = 1; i < results[0].size(); ++i)
        all = emit(graph_, combining(factor.reduction), {all, results[0][i]}, nullptr, {}, node->outputs[0]->name);
      Value* whole = node->outputs[0];
      const std::string name = whole->name;
      check(replace(graph_, whole, all), "a sum of pieces replaces the sum");
      graph_.rename(whole, name + "_before");
      graph_.rename(all, name);
      return;
    }
    for (size_t t = 0; t < results.size(); ++t)
      if (node->outputs[t]) pieces_[node->outputs[t]] = std::move(results[t]);
  }

  static std::string_view combining(Reduction reduction) {
    return reduction == Reduction::sum ? "Add" : reduction == Reduction::max ? "Max" : "Min";
  }

  /// The node on piece `i`: the operator's local form on a rank that has this piece.
  std::vector<Value*> local_form(const Node& node, const CutNode& cut, size_t i) {
    ops::Localizer local{node, cut.rule, graph_, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
    for (Value* operand : node.inputs) local.inputs.push_back(operand ? piece_of(operand, i) : nullptr);
    for (Value* result : node.outputs) {
      TensorType& type = local.outputs.emplace_back(result ? result->type : TensorType{});
      if (auto known = cuts_.find(result); known != cuts_.end())
        (*type.shape)[known->second.dim] = known->second.sizes[i];
    }
    for (size_t f = 0; f < cut.rule.factors.size(); ++f) {
      const bool is_cut = static_cast<int>(f) == cut.factor;
      local.extents.push_back(is_cut ? Expr(cut.sizes[i]) : cut.rule.factors[f].size);
      local.offsets.push_back(is_cut ? Expr(start_of({0, cut.sizes}, i)) : Expr(0));
      local.split.push_back(is_cut);
      local.places.push_back(is_cut ? Expr(static_cast<int64_t>(i)) : Expr(0));
      local.ranks.push_back(is_cut ? std::ssize(cut.sizes) : 1);
    }
    const ops::LocalizeFn localize = ops::op_of(node).localize;
    std::vector<Value*> results = localize ? localize(local) : local.same();
    for (const Value* result : results)
      if (result && result->producer) settle_sizes(result->producer);
    return results;
  }

  /// Turns shapes whose extents are numbers into constants.
  void settle_sizes(Node* node) {
    for (size_t t = 0; t < node->inputs.size(); ++t) {
      const Value* operand = node->inputs[t];
      if (!operand || operand->kind != ValueKind::expression || operand->dtype() != DType::int64) continue;
      if (const auto elements = constants_of(*operand->content))
        graph_.set_input(node, t, graph_.constant_int64(*elements, operand->rank() == 0));
    }
  }

  /// A Split or a Slice whose results are pieces.
  void take(Node* node, const std::vector<Value*>& pieces, const std::vector<size_t>& taken) {
    for (size_t t = 0; t < taken.size(); ++t) {
      Value* piece = pieces[taken[t]];
      if (!replace(graph_, node->outputs[t], piece))
        replace(graph_, node->outputs[t], emit(graph_, "Identity", {piece}, nullptr, {}, piece->name));
    }
  }

  void join_outputs() {
    for (Value* value : order_)
      if (graph_.is_output(value))
        replace(graph_, value,
                emit(graph_, "Concat", pieces_.at(value), nullptr,
                     {attribute("axis", static_cast<int64_t>(cuts_.at(value).dim))}, value->name));
  }

  void step() {
    for (Value* state : order_) {
      if (!state->next) continue;
      const auto &own = pieces_.at(state), &next = pieces_.at(state->next);
      for (size_t i = 0; i < own.size(); ++i) graph_.set_next(own[i], next[i]);
      graph_.set_next(state, nullptr);
    }
  }

  Graph& graph_;
  std::multimap<const Value*, Value*> stepped_by_;  ///< states by their next values
  std::map<Value*, Cut> cuts_;
  std::vector<Value*> order_, waiting_;
  std::unordered_map<const Node*, CutNode> nodes_;
  std::map<Value*, std::vector<Value*>> pieces_;
};

}  // namespace

bool divide(Graph& graph, Value* whole, const Cut& cut) {
  Divider divider(graph);
  if (!divider.plan(whole, cut)) return false;
  divider.run();
  return true;
}

}  // namespace tessera::rewrite
