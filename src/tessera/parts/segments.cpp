#include "tessera/parts/segments.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lists.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/regions/open_regions.h"

namespace tessera::parts {
namespace {

// Whether sizes depend on data in one of the node's branches or bodies.
bool holds_data_sized(const Node& node) {
  for (const Graph* region : node.regions())
    for (const auto& inner : region->nodes())
      if (ops::is_data_sized(*inner) || holds_data_sized(*inner)) return true;
  return false;
}

// Replaces Ifs with constant conditions by their branches, since nodes in these may run between parts.
void take_known_branches(Graph& graph) {
  const auto is_known = [](const auto& node) {
    return node->is("If") && node->input(0) && node->input(0)->kind == ValueKind::constant;
  };
  rewrite::RegionOpener opener(graph, [](Node*) {});
  for (;;) {
    const auto found = std::find_if(graph.nodes().begin(), graph.nodes().end(), is_known);
    if (found == graph.nodes().end()) return;
    opener.open(found->get());
  }
}

// The outer values of a body or branch from which follow elements that its nodes must know before they are compiled.
// True: some follow from these alone, so they do not differ between iterations.
std::map<const Value*, bool> values_around(const Node& node, const Graph& body) {
  std::map<const Value*, bool> wanted, around;
  for (const auto& inner : body.nodes()) {
    for (size_t i = 0; i < inner->operand_count(); ++i)
      if (inner->inputs[i] && rewrite::needs_value(*inner, i)) wanted[inner->inputs[i]] = true;
    for (const Graph* region : inner->regions())
      for (const auto& [value, alone] : values_around(*inner, *region)) wanted[value] |= alone;
  }
  std::map<const Value*, Value*> captured;
  rewrite::map_captures(node, body, captured);
  for (auto [target, alone] : wanted) {
    std::set<const Value*> seen, found;
    std::vector<const Value*> queue{target};
    while (!queue.empty()) {
      const Value* value = queue.back();
      queue.pop_back();
      if (!seen.insert(value).second) continue;
      if (const auto outside = captured.find(value); outside != captured.end())
        found.insert(outside->second);
      else if (value->kind == ValueKind::input)
        alone = false;
      if (!value->producer) continue;
      for (size_t i = 0; i < value->producer->inputs.size(); ++i)
        if (value->producer->inputs[i] && ops::reads_elements(*value->producer, i))
          queue.push_back(value->producer->inputs[i]);
    }
    for (const Value* value : found) around[value] |= alone;
  }
  return around;
}

// Keeps only the nodes that compute `outputs` from the graph's inputs, its parameters, and the values of these names,
// which become inputs.
void detach(Graph& graph, const std::set<std::string>& imported, std::vector<Value*> outputs) {
  graph.outputs = std::move(outputs);
  for (const std::string& name : imported) {
    Value* before = graph.find(name);
    graph.rename(before, name + ".before");
    graph.replace_uses(before, graph.add_input(name, before->type));
  }
  graph.erase_dead(true);
  for (Value* input : std::vector<Value*>(graph.inputs)) {
    if (!input->uses.empty() || graph.is_output(input)) continue;
    std::erase(graph.inputs, input);
    graph.erase(input);
  }
}

class Segmenter {
 public:
  Segmenter(const OnnxModel& model, const ops::Needs& needs)
      : model_(model.clone()), graph_(*model_.graph), needs_(needs) {
    rewrite::inline_functions(model_);
    rewrite::upgrade(model_);
    rewrite::spread_routed_rows(model_);
    take_known_branches(graph_);
  }

  std::vector<Segment> run() {
    for (const auto& node : graph_.nodes()) {
      if (is_decided_between_parts(*node)) deciding_.insert(node->input(0));
      if (is_stepped(*node)) rewrite::refuse_random(rewrite::region_of(*node, "body"), *node);
    }
    for (const auto& node : graph_.nodes()) place(*node);
    if (parts_ > 1)
      for (const Value* state : graph_.values_of(ValueKind::state))
        if (state->next)
          fail("segments",
               "the state '{}' changes, but the model's shapes depend on computed data, so it runs in parts; "
               "export it with fixed shapes",
               state->name);
    std::vector<Segment> parts;
    for (int part = 0; part < parts_; ++part) parts.push_back(make(part));
    return parts;
  }

 private:
  bool is_apart(const Node& node) const {
    const auto& regions = needs_.regions;
    return holds_data_sized(node) ||
           std::find(regions.begin(), regions.end(), rewrite::first_result(node)) != regions.end();
  }
  // An If with sizes in its branches that depend on data: once its condition is known, the branch is a model of its
  // own.
  bool is_decided_between_parts(const Node& node) const { return node.is("If") && is_apart(node); }
  bool is_stepped(const Node& node) const { return (node.is("Loop") || node.is("Scan")) && is_apart(node); }
  bool runs_between(const Node& node) const { return ops::is_data_sized(node) || is_stepped(node); }

  bool must_be_computed(const Value& value) const { return !needs_.value.empty() && value.name == needs_.value; }

  int available(const Value* value) const {
    auto found = available_.find(value);
    return found == available_.end() ? 0 : found->second;
  }

  // Whether the elements follow from constants, shapes, small inputs and, from `part` on, results of earlier parts;
  // adds these inputs and results to `needed`.
  bool is_known(const Value* value, int part = 0, std::set<const Value*>* needed = nullptr, bool direct = true) const {
    if (part > 0 && comes_from_before(value, part)) {
      needed->insert(value);
      return true;
    }
    if (must_be_computed(*value)) return false;
    if (value->kind == ValueKind::input) {
      // Values computed from floats are not evaluated before a run.
      if (!value->has_shape() || value->rank() > 1 || (!direct && is_float(value->dtype()))) return false;
      if (needed) needed->insert(value);
      return true;
    }
    if (!value->producer) return !value->changing;
    const Node& node = *value->producer;
    if (runs_between(node)) return false;
    if (node.is("SequenceLength")) return has_known_length(node.inputs[0], part, needed);
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (op ? op->counter.has_value() : !node.is("If") && !rewrite::lowering_of(node)) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] && ops::reads_elements(node, i) && !is_known(node.inputs[i], part, needed, false))
        return false;
    return true;
  }

  // The same for a sequence's length, which does not depend on its tensors' elements.
  bool has_known_length(const Value* sequence, int part, std::set<const Value*>* needed) const {
    const Node* node = sequence->producer;
    if (!node) return false;
    if (node->is("SequenceEmpty") || node->is("SequenceConstruct")) return true;
    if (node->is("SplitToSequence")) return !node->input(1) || is_known(node->inputs[1], part, needed, false);
    const bool hands_on = node->is("Identity") || node->is("SequenceInsert") || node->is("SequenceErase");
    return hands_on && has_known_length(node->inputs[0], part, needed);
  }

  // Whether a loop's result is a sequence, or has rows for each iteration, so that the number of iterations decides a
  // shape.
  static bool counts_rows(const Node& node) {
    return node.is("Loop") && (node.outputs.size() + 2 > node.operand_count() ||
                               std::any_of(node.outputs.begin(), node.outputs.end(), [](const Value* result) {
                                 return result && rewrite::is_sequence(*result);
                               }));
  }

  // Calls visit(value) for each operand whose elements must be known before the node is compiled.
  template <typename Visit>
  void for_values(const Node& node, Visit visit) const {
    if (is_stepped(node)) return;
    for (size_t i = 0; i < node.operand_count(); ++i)
      if (node.inputs[i] &&
          (rewrite::needs_value(node, i) || (i < 2 && counts_rows(node)) || is_decided_between_parts(node)))
        visit(node.inputs[i]);
    if (!is_decided_between_parts(node))
      for (const Graph* region : node.regions())
        // If others turn out to be unknown when the loop is rewritten, the loop runs between parts.
        for (const auto& [value, alone] : values_around(node, *region))
          if ((value->producer && alone) || is_known(value)) visit(value);
  }

  void place(const Node& node) {
    if (ops::find_op(node.op_type, node.domain) ? follows_from_constants(node) : node.is("Constant"))
      for (const Value* result : node.outputs)
        if (result && !deciding_.contains(result) && !must_be_computed(*result)) constant_.insert(result);
    int part = 0;
    for (const Value* operand : node.inputs)
      if (operand) part = std::max(part, available(operand));
    const bool decides = is_decided_between_parts(node);
    for_values(node, [&](const Value* value) {
      if (decides ? value->producer != nullptr : !is_known(value)) part = std::max(part, available(value) + 1);
    });
    part_[&node] = part;
    const int done = decides || runs_between(node) ? part + 1 : part;
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

  // A result that part `part` takes from earlier parts. (Each part has its own constants.)
  bool comes_from_before(const Value* value, int part) const {
    return value->producer && !constant_.contains(value) && !rewrite::is_put_together(*value) &&
           (runs_between(*value->producer) || part_.at(value->producer) < part);
  }

  // The value itself or, for a sequence, the values that it consists of. Calls visit(node) for each node that builds
  // the sequence.
  template <typename Visit>
  static void collect_leaves(const Value* value, std::set<const Value*>& into, Visit visit) {
    if (!rewrite::is_put_together(*value)) {
      into.insert(value);
      return;
    }
    // A sequence is built element by element, by a chain of nodes as long as it is.
    std::vector<const Value*> queue{value};
    while (!queue.empty()) {
      const Node& maker = *queue.back()->producer;
      queue.pop_back();
      visit(maker);
      for (const Value* operand : maker.inputs)
        if (operand && rewrite::is_put_together(*operand))
          queue.push_back(operand);
        else if (operand)
          into.insert(operand);
    }
  }

  static void refuse_sequence(const Value& value) {
    if (rewrite::is_sequence(value))
      fail("segments",
           "the sequence '{}' is read by a later part of the model, which runs in parts because its shapes depend on "
           "computed data; only tensors can pass between parts, so join those of the sequence by a ConcatFromSequence "
           "where it is computed",
           value.name);
  }

  Segment make(int part) const {
    Segment segment;
    segment.sizes = needs_.symbols;
    std::set<const Value*> imported, exported, values;
    for (const auto& node : graph_.nodes()) {
      const bool here = part_.at(node.get()) == part;
      const bool computed_here = here && !runs_between(*node);
      if (here && !computed_here) run_after(segment, *node);
      if (node->output() && rewrite::is_put_together(*node->output())) continue;  // wherever it is read
      const auto need_values = [&](const Node& of) {
        if (computed_here) for_values(of, [&](const Value* value) { is_known(value, part, &values); });
      };
      for (size_t i = 0; i < node->inputs.size(); ++i) {
        if (!node->inputs[i]) continue;
        std::set<const Value*> leaves;
        collect_leaves(node->inputs[i], leaves, need_values);
        for (const Value* operand : leaves) {
          if (computed_here && comes_from_before(operand, part)) imported.insert(operand);
          const bool has_own = constant_.contains(operand) && (!runs_between(*node) || i >= node->operand_count());
          if (!computed_here && !has_own && made_in(operand, part)) exported.insert(operand);
        }
      }
      need_values(*node);
    }
    for (const Value* output : graph_.outputs)
      if (made_in(output, part)) exported.insert(output);
    for (const Value* value : imported) refuse_sequence(*value);
    segment.model = cut(imported, exported);
    const Graph& made = *segment.model.graph;
    for (const Value* value : values)
      if (std::any_of(made.inputs.begin(), made.inputs.end(), [&](const Value* i) { return i->name == value->name; }))
        segment.values.push_back(value->name);
    return segment;
  }

  bool made_in(const Value* value, int part) const {
    return value->producer && !runs_between(*value->producer) && part_.at(value->producer) == part;
  }

  void run_after(Segment& segment, const Node& node) const {
    Between& between = segment.after.emplace_back();
    between.node.op_type = node.op_type;
    between.node.domain = node.domain;
    between.node.name = rewrite::prefix_of(node);
    for (const Attribute& attribute : node.attributes)
      if (!std::holds_alternative<Region>(attribute.value)) between.node.attributes.push_back(attribute);
    for (size_t i = 0; i < node.operand_count(); ++i) {
      const Value* operand = node.inputs[i];
      if (operand && rewrite::is_sequence(*operand))
        fail("segments",
             "{}: it runs between parts of the model, because shapes in its body depend on data, and cannot carry the "
             "sequence '{}' there; let it stack its tensors as a scan output, or append them to one by a Concat",
             node.label(), operand->name);
      between.operands.push_back(operand ? operand->name : "");
      if (operand && operand->has_data()) segment.constants[operand->name] = operand->data;
    }
    for (const Value* result : node.outputs) between.results.push_back(result ? result->name : "");
    if (is_stepped(node)) between.loop = std::make_shared<SteppedLoop>(step(node));
  }

  // The nodes that compute `exported` from `imported`, the model's inputs and its parameters.
  OnnxModel cut(const std::set<const Value*>& imported, const std::set<const Value*>& exported) const {
    OnnxModel model = model_.clone();
    std::set<std::string> names;
    for (const Value* value : imported) names.insert(value->name);
    std::vector<Value*> outputs;
    for (const auto& value : graph_.values())
      if (exported.contains(value.get())) outputs.push_back(model.graph->find(value->name));
    detach(*model.graph, names, std::move(outputs));
    return model;
  }

  // Symbols of a loop's extents are named after it.
  std::string unique_prefix(const Node& node) const {
    const std::string prefix = rewrite::prefix_of(node);
    const auto is_like = [&](const auto& other) {
      return !other->regions().empty() && rewrite::prefix_of(*other) == prefix;
    };
    return std::count_if(graph_.nodes().begin(), graph_.nodes().end(), is_like) > 1 ? rewrite::first_result(node)
                                                                                    : prefix;
  }

  // The body as a model. It recomputes values that follow from constants alone.
  SteppedLoop step(const Node& node) const {
    const auto damaged = [&] {
      fail("flow", "{}: its body does not take or return as many values as the node; the file is damaged",
           node.label());
    };
    const bool is_scan = node.is("Scan");
    const size_t operands = node.operand_count(), flags = is_scan ? 0 : 2;
    const auto items = is_scan ? static_cast<size_t>(std::max<int64_t>(0, node.get_int("num_scan_inputs", 0))) : 0;
    if (operands < items + flags) damaged();
    const size_t carried = operands - items - flags;

    OnnxModel model = model_.clone();
    Graph& graph = *model.graph;
    Node* copy = graph.find(rewrite::first_result(node))->producer;
    const Graph& body = rewrite::region_of(*copy, "body");
    const size_t first_next = is_scan ? 0 : 1;
    if (body.inputs.size() != operands || body.outputs.size() < first_next + carried ||
        node.outputs.size() > body.outputs.size() - first_next)
      damaged();
    if (!is_scan && !node.inputs[0] && rewrite::stays_true(body.outputs[0], body.inputs[1]))
      fail("flow", "{}: it never ends: it has no trip count, and its condition stays true", node.label());

    SteppedLoop loop{.prefix = unique_prefix(node)};
    const auto named = [&](const std::string& name) { return loop.prefix + "/" + name; };
    std::map<const Value*, Value*> known;
    rewrite::map_captures(*copy, body, known);
    std::set<std::string> imported;
    std::set<const Value*> captured;
    for (size_t i = operands; i < node.inputs.size(); ++i) collect_leaves(node.inputs[i], captured, [](const Node&) {});
    for (const Value* value : captured)
      if (value->producer && !constant_.contains(value)) imported.insert(value->name);
    std::vector<std::string> inputs, outputs;
    for (const Value* input : body.inputs) {
      known[input] = graph.add_input(named(input->name), input->type);
      inputs.push_back(known.at(input)->name);
    }
    if (!is_scan && body.inputs[0]->has_shape()) loop.iteration_dims.assign(body.inputs[0]->rank(), 1);
    rewrite::splice(graph, body, known, copy, loop.prefix);
    std::vector<Value*> results;
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      Value* value = known.at(body.outputs[i]);
      Node* given = graph.add_node("Identity", {value}, {fmt::format("{}.{}", loop.prefix, i)}, "", copy);
      given->outputs[0]->type = value->type;
      results.push_back(given->outputs[0]);
      outputs.push_back(results.back()->name);
      if (i >= first_next + carried) loop.row_types.push_back(value->type);
    }
    detach(graph, imported, results);

    if (!is_scan) {
      loop.iteration = inputs[0];
      loop.runs = inputs[1];
      loop.goes_on = outputs[0];
    }
    const auto first_carried = inputs.begin() + static_cast<long>(flags),
               first_item = first_carried + static_cast<long>(carried);
    loop.carried.assign(first_carried, first_item);
    loop.items.assign(first_item, inputs.end());
    const auto next = outputs.begin() + static_cast<long>(first_next), rows = next + static_cast<long>(carried);
    loop.next.assign(next, rows);
    loop.rows.assign(rows, outputs.end());
    const auto numbers = [&](std::string_view name, size_t count) {
      auto given = node.get_ints(name, std::vector<int64_t>(count, 0));
      if (given.size() != count) damaged();
      return given;
    };
    const auto flags_of = [&](std::string_view name, size_t count) {
      const auto given = numbers(name, count);
      return std::vector<bool>(given.begin(), given.end());
    };
    loop.item_axes = numbers("scan_input_axes", loop.items.size());
    loop.row_axes = numbers("scan_output_axes", loop.rows.size());
    loop.item_reversed = flags_of("scan_input_directions", loop.items.size());
    loop.row_reversed = flags_of("scan_output_directions", loop.rows.size());
    loop.body = as_segment(std::move(model));
    return loop;
  }

  // A model that is a part; if it has parts of its own, they are found when it is compiled.
  static Segment as_segment(OnnxModel model) {
    std::vector<Segment> parts = segments_of(model);
    if (parts.size() == 1) return std::move(parts.front());
    return {.model = std::move(model)};
  }

  OnnxModel model_;
  Graph& graph_;
  const ops::Needs& needs_;
  int parts_ = 1;
  std::map<const Node*, int> part_;
  std::set<const Value*> deciding_;        ///< conditions that decide between parts
  std::set<const Value*> constant_;        ///< results that follow from constants alone; each part recomputes them
  std::map<const Value*, int> available_;  ///< the first part that can use a value, if not 0
};

}  // namespace

std::vector<Segment> segments_of(const OnnxModel& model, const ops::Needs& needs) {
  return Segmenter(model, needs).run();
}

OnnxModel with_values(const OnnxModel& model, const std::map<std::string, Tensor>& values) {
  OnnxModel changed = model.clone();
  Graph& graph = *changed.graph;
  for (const auto& [name, data] : values) {
    Value* input = graph.find(name);
    if (!input || std::find(graph.inputs.begin(), graph.inputs.end(), input) == graph.inputs.end())
      fail("inputs", "the model has no input '{}' to give a value", name);
    if (input->dtype() != data.dtype)
      fail("inputs", "input '{}' has dtype {}, but the model needs {}", name, name_of(data.dtype),
           name_of(input->dtype()));
    data.require_whole(name);
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

}  // namespace tessera::parts
