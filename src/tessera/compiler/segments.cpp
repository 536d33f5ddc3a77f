#include "tessera/compiler/segments.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/lower.h"
#include "tessera/rewrite/open_regions.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {
namespace {

// Whether sizes depend on data in one of the node's branches or bodies.
bool holds_data_sized(const Node& node) {
  for (const Graph* region : node.regions())
    for (const auto& inner : region->nodes())
      if (ops::is_data_sized(*inner) || holds_data_sized(*inner)) return true;
  return false;
}

// An If in whose branches sizes depend on data: once its condition is known, the branch is a model of its own.
bool is_decided_between_parts(const Node& node) {
  return node.is("If") && node.domain.empty() && holds_data_sized(node);
}

// Puts branches in the place of those Ifs whose conditions are constants.
void take_known_branches(Graph& graph) {
  const auto is_known = [](const auto& node) {
    return is_decided_between_parts(*node) && node->input(0) && node->input(0)->kind == ValueKind::constant;
  };
  rewrite::RegionOpener opener(graph, [](Node*) {});
  for (;;) {
    const auto found = std::find_if(graph.nodes().begin(), graph.nodes().end(), is_known);
    if (found == graph.nodes().end()) return;
    opener.open(found->get());
  }
}

class Segmenter {
 public:
  explicit Segmenter(const OnnxModel& model) : model_(model.clone()), graph_(*model_.graph) {
    rewrite::inline_functions(model_);
    rewrite::upgrade(model_);
    rewrite::spread_routed_rows(model_);
    take_known_branches(graph_);
  }

  std::vector<Segment> run() {
    for (const auto& node : graph_.nodes())
      if (is_decided_between_parts(*node)) deciding_.insert(node->input(0));
    for (const auto& node : graph_.nodes()) place(*node);
    if (parts_ > 1)
      for (const Value* state : graph_.values_of(ValueKind::state))
        if (state->next)
          fail("segments",
               "the state '{}' steps, but the model's shapes depend on what it computes, so that it runs in parts; "
               "export it with fixed shapes",
               state->name);
    std::vector<Segment> parts;
    for (int part = 0; part < parts_; ++part) parts.push_back(make(part));
    return parts;
  }

 private:
  int available(const Value* value) const {
    auto found = available_.find(value);
    return found == available_.end() ? 0 : found->second;
  }

  // Whether the elements follow from constants, shapes, the elements of small inputs and, once `part` is reached, of
  // what parts before it gave; adds these to `needed`.
  bool is_known(const Value* value, int part = 0, std::set<const Value*>* needed = nullptr, bool direct = true) const {
    if (part > 0 && comes_from_before(value, part)) {
      needed->insert(value);
      return true;
    }
    if (value->kind == ValueKind::input) {
      // What is computed from floats is not followed before a run.
      if (!value->has_shape() || value->rank() > 1 || (!direct && is_float(value->dtype()))) return false;
      if (needed) needed->insert(value);
      return true;
    }
    if (!value->producer) return !value->changing;
    const Node& node = *value->producer;
    if (ops::is_data_sized(node)) return false;
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (op ? op->counter.has_value() : !node.is("If") && !rewrite::lowering_of(node)) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] && ops::reads_elements(node, i) && !is_known(node.inputs[i], part, needed, false))
        return false;
    return true;
  }

  // Whether a loop gives rows for each iteration, so that the number of iterations decides a shape.
  static bool counts_rows(const Node& node) {
    return node.is("Loop") && node.outputs.size() + 2 > node.operand_count();
  }

  // Calls visit(value) for each operand whose elements must be known before the node is compiled.
  template <typename Visit>
  static void for_values(const Node& node, Visit visit) {
    for (size_t i = 0; i < node.operand_count(); ++i)
      if (node.inputs[i] &&
          (rewrite::needs_value(node, i) || (i < 2 && counts_rows(node)) || is_decided_between_parts(node)))
        visit(node.inputs[i]);
  }

  void place(const Node& node) {
    if (ops::find_op(node.op_type, node.domain) ? follows_from_constants(node) : node.is("Constant"))
      for (const Value* result : node.outputs)
        if (!deciding_.contains(result)) constant_.insert(result);
    int part = 0;
    for (const Value* operand : node.inputs)
      if (operand) part = std::max(part, available(operand));
    const bool decides = is_decided_between_parts(node);
    for_values(node, [&](const Value* value) {
      if (decides ? value->producer != nullptr : !is_known(value)) part = std::max(part, available(value) + 1);
    });
    part_[&node] = part;
    const int done = decides || ops::is_data_sized(node) ? part + 1 : part;
    parts_ = std::max(parts_, done + 1);
    for (const Value* result : node.outputs)
      if (result && done > 0) available_[result] = done;
  }

  bool follows_from_constants(const Node& node) const {
    if (ops::is_data_sized(node) || ops::find_op(node.op_type, node.domain)->counter) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](const Value* operand) {
      return !operand || operand->kind == ValueKind::constant || constant_.contains(operand);
    });
  }

  // A result that part `part` takes from parts before it. (Each part has constants of its own.)
  bool comes_from_before(const Value* value, int part) const {
    return value->producer && !constant_.contains(value) &&
           (ops::is_data_sized(*value->producer) || part_.at(value->producer) < part);
  }

  Segment make(int part) const {
    Segment segment;
    std::set<const Value*> imported, exported, values;
    for (const auto& node : graph_.nodes()) {
      const bool here = part_.at(node.get()) == part;
      const bool computed_here = here && !ops::is_data_sized(*node);
      if (here && !computed_here) {
        segment.data_sized.push_back(*node);
        segment.operands.emplace_back();
        for (const Value* operand : node->inputs) {
          segment.operands.back().push_back(operand ? operand->name : "");
          if (operand && operand->has_data()) segment.constants[operand->name] = operand->data;
        }
        segment.results.emplace_back();
        for (const Value* result : node->outputs) segment.results.back().push_back(result ? result->name : "");
      }
      for (const Value* operand : node->inputs) {
        if (!operand) continue;
        if (computed_here && comes_from_before(operand, part)) imported.insert(operand);
        const bool has_own = constant_.contains(operand) && !ops::is_data_sized(*node);
        if (!computed_here && !has_own && made_in(operand, part)) exported.insert(operand);
      }
      if (!computed_here) continue;
      for_values(*node, [&](const Value* value) { is_known(value, part, &values); });
      segment.may_have_parts |= is_decided_between_parts(*node);
    }
    for (const Value* output : graph_.outputs)
      if (made_in(output, part)) exported.insert(output);
    segment.model = cut(imported, exported);
    const Graph& made = *segment.model.graph;
    for (const Value* value : values)
      if (std::any_of(made.inputs.begin(), made.inputs.end(), [&](const Value* i) { return i->name == value->name; }))
        segment.values.push_back(value->name);
    return segment;
  }

  bool made_in(const Value* value, int part) const {
    return value->producer && !ops::is_data_sized(*value->producer) && part_.at(value->producer) == part;
  }

  // What computes `exported` from `imported`, the model's inputs and its parameters.
  OnnxModel cut(const std::set<const Value*>& imported, const std::set<const Value*>& exported) const {
    OnnxModel model = model_.clone();
    Graph& graph = *model.graph;
    graph.outputs.clear();
    for (const auto& value : graph_.values())
      if (exported.contains(value.get())) graph.outputs.push_back(graph.find(value->name));
    for (const auto& value : graph_.values()) {
      if (!imported.contains(value.get())) continue;
      Value* before = graph.find(value->name);
      graph.rename(before, value->name + ".before");
      graph.replace_uses(before, graph.add_input(value->name, value->type));
    }
    graph.erase_dead(true);
    for (Value* input : std::vector<Value*>(graph.inputs)) {
      if (!input->uses.empty() || graph.is_output(input)) continue;
      std::erase(graph.inputs, input);
      graph.erase(input);
    }
    return model;
  }

  OnnxModel model_;
  Graph& graph_;
  int parts_ = 1;
  std::map<const Node*, int> part_;
  std::set<const Value*> deciding_;        ///< conditions that decide between parts
  std::set<const Value*> constant_;        ///< results that follow from constants alone, and each part computes anew
  std::map<const Value*, int> available_;  ///< the first part that can use a value, if not 0
};

}  // namespace

std::vector<Segment> segments_of(const OnnxModel& model) {
  return Segmenter(model).run();
}

OnnxModel with_values(const OnnxModel& model, const std::map<std::string, Tensor>& values) {
  OnnxModel changed = model.clone();
  Graph& graph = *changed.graph;
  for (const auto& [name, data] : values) {
    Value* input = graph.find(name);
    if (!input || std::find(graph.inputs.begin(), graph.inputs.end(), input) == graph.inputs.end())
      fail("inputs", "the model has no input '{}', so that it can have no value", name);
    if (input->dtype() != data.dtype)
      fail("inputs", "input '{}' has dtype {}, but the model wants {}", name, name_of(data.dtype),
           name_of(input->dtype()));
    graph.rename(input, name + ".given");
    Value* known = graph.add_constant(name, data);
    if (graph.is_output(input)) {
      // An output is a node's result.
      graph.rename(known, name + ".value");
      const Node* first = graph.nodes().empty() ? nullptr : graph.nodes().front().get();
      Value* copy = graph.add_node("Identity", {known}, {name}, "", first)->outputs[0];
      copy->type = known->type;
      known = copy;
    }
    graph.replace_uses(input, known);
    std::erase(graph.inputs, input);
    graph.erase(input);
  }
  return changed;
}

}  // namespace tessera::compiler
