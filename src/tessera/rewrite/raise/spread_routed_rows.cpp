#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/regions/open_regions.h"

// Exporters unroll a loop over experts, each of which finds the tokens that chose it by NonZero, so that sizes depend
// on data. This pass lets each expert compute all tokens, with weights of zero for those that did not choose it:
//
//   slot, token = NonZero (choices [t, c] = e, transposed to [c, t])
//   ScatterND (sum, token, f (GatherND (x, token)) · GatherND (weights, [token, slot]), "add")
//   → sum + f (x) · Σc weights · [choices = e]
//
// where f works row by row. All sizes are then known before the run, and raise_expert_sums turns the sum into Experts,
// which computes only what is chosen.
namespace tessera::rewrite {
namespace {

/// The elements of an integer that the file holds.
std::optional<std::vector<int64_t>> stored_ints(const Value* value) {
  if (!value) return std::nullopt;
  const Tensor* data = value->has_data() ? &value->data : nullptr;
  if (!data && value->producer && value->producer->is("Constant")) data = value->producer->get<Tensor>("value");
  constexpr int64_t kMost = 4096;
  if (!data || !data->data || !is_integer(data->dtype) || bits_of(data->dtype) < 8 || data->count() > kMost)
    return std::nullopt;
  return data->to_int64();
}

std::optional<int64_t> stored_int(const Value* value) {
  const auto all = stored_ints(value);
  return all && all->size() == 1 ? std::optional(all->front()) : std::nullopt;
}

bool adds_dimension(const Node& node) {
  return node.is("Unsqueeze") || node.is("Squeeze");
}

/// One expert's choices: where choices [t, c] equal its number.
struct Chosen {
  Value *choices = nullptr, *number = nullptr;
};

/// The mask [c, t] of the choices of one expert, which is a row of the masks [e, c, t] of all.
std::optional<Chosen> chosen(Value* mask) {
  const Node* select = mask->producer;
  if (!select || !select->is("Gather") || select->get_int("axis", 0) != 0) return std::nullopt;
  const auto number = stored_int(select->inputs[1]);
  const Node* turned = select->inputs[0]->producer;
  if (!number || !turned || !turned->is("Transpose") || turned->get_ints("perm") != std::vector<int64_t>{2, 1, 0})
    return std::nullopt;
  Value* at = turned->inputs[0];
  while (at->producer && at->producer->is("Cast")) at = at->producer->inputs[0];
  const Node* equal = at->producer;
  if (!equal || !equal->is("Equal")) return std::nullopt;
  for (size_t i : {0, 1}) {
    const auto numbers = stored_ints(equal->inputs[1 - i]);
    const Node* column = equal->inputs[i]->producer;
    if (!numbers || !column || !column->is("Unsqueeze") || stored_int(column->inputs[1]) != -1) continue;
    bool in_order = *number >= 0 && *number < static_cast<int64_t>(numbers->size());
    for (size_t n = 0; n < numbers->size(); ++n) in_order &= (*numbers)[n] == static_cast<int64_t>(n);
    if (in_order) return Chosen{column->inputs[0], select->inputs[1]};
  }
  return std::nullopt;
}

class Spreading {
 public:
  /// Places of nodes in the graph's order. Nodes that another Spreading has added since depend on no rows of this one.
  using Places = std::map<const Node*, size_t>;

  Spreading(Graph& graph, Node* non_zero, const Places& places) : graph_(graph), non_zero_(non_zero), places_(places) {}

  bool run() {
    const auto found = chosen(non_zero_->inputs[0]);
    if (!found || !follow_indices() || !scatter_ || tokens_.empty() || !follow_rows()) return false;
    apply(*found);
    return true;
  }

 private:
  /// Which component of NonZero's pairs a value holds.
  enum class Part { pairs, both, slot, token };

  /// Follows the indices to their readers; false if a reader is unknown.
  bool follow_indices() {
    std::vector<Value*> queue;
    const auto add = [&](Value* value, Part part) {
      parts_[value] = part;
      queue.push_back(value);
    };
    add(non_zero_->outputs[0], Part::pairs);
    while (!queue.empty()) {
      Value* value = queue.back();
      queue.pop_back();
      if (graph_.is_output(value)) return false;
      const Part part = parts_.at(value);
      for (const Use& use : value->uses) {
        Node& node = *use.node;
        if (part == Part::pairs) {
          if (!node.is("Transpose") || node.get_ints("perm", {1, 0}) != std::vector<int64_t>{1, 0}) return false;
          add(node.outputs[0], Part::both);
        } else if (part == Part::both && node.is("Slice") && use.index == 0) {
          const auto start = stored_int(node.input(1)), end = stored_int(node.input(2)),
                     axis = stored_int(node.input(3));
          if (!start || !end || axis != 1 || (node.input(4) && stored_int(node.input(4)) != 1)) return false;
          if (*start < 0 || *start > 1 || *end != *start + 1) return false;
          add(node.outputs[0], *start == 0 ? Part::slot : Part::token);
        } else if (part != Part::both && use.index == 0 && adds_dimension(node)) {
          add(node.outputs[0], part);
        } else if (!reads_rows(node, use, part)) {
          return false;
        }
      }
    }
    return true;
  }

  /// Gathers of tokens and of weights, and the scatter that adds the results.
  bool reads_rows(Node& node, const Use& use, Part part) {
    if (node.is("Concat") && part != Part::both && node.inputs.size() == 2) {
      if (use.index != (part == Part::token ? 0 : 1) || node.get_int("axis", 0) != -1) return false;
      for (const Use& of_pair : node.outputs[0]->uses) {
        Node& gather = *of_pair.node;
        if (!gather.is("GatherND") || of_pair.index != 1 || gather.get_int("batch_dims", 0) != 0) return false;
        weights_.insert(&gather);
      }
      return !graph_.is_output(node.outputs[0]);
    }
    if (part != Part::token || use.index != 1) return false;
    const bool gathers =
        (node.is("GatherND") && node.get_int("batch_dims", 0) == 0 && is_column(use.node->inputs[1])) ||
        (node.is("Gather") && node.get_int("axis", 0) == 0 && !is_column(use.node->inputs[1]));
    if (gathers) {
      tokens_.insert(&node);
      return tokens_.size() == 1 || node.inputs[0] == (*tokens_.begin())->inputs[0];
    }
    if (!node.is("ScatterND") || node.get_string("reduction", "none") != "add" || scatter_ ||
        !is_column(node.inputs[1]))
      return false;
    scatter_ = &node;
    return true;
  }

  /// Whether the indices are a column [n, 1], from an Unsqueeze.
  static bool is_column(const Value* indices) { return indices->producer && indices->producer->is("Unsqueeze"); }

  /// The nodes that depend on rows, up to the sum, in the graph's order.
  std::vector<Node*> readers_of(const std::set<const Value*>& rows) const {
    std::set<Node*> found;
    std::vector<const Value*> queue(rows.begin(), rows.end());
    while (!queue.empty()) {
      const Value* value = queue.back();
      queue.pop_back();
      for (const Use& use : value->uses)
        if (found.insert(use.node).second && use.node != scatter_)
          for (const Value* result : use.node->outputs)
            if (result) queue.push_back(result);
    }
    std::vector<Node*> ordered(found.begin(), found.end());
    const auto place = [&](const Node* node) {
      const auto at = places_.find(node);
      return at == places_.end() ? 0 : at->second;
    };
    std::sort(ordered.begin(), ordered.end(), [&](const Node* a, const Node* b) { return place(a) < place(b); });
    return ordered;
  }

  /// Whether all nodes between the gathers and the sum work row by row.
  bool follow_rows() const {
    std::set<const Value*> rows;
    for (const auto* gathers : {&tokens_, &weights_})
      for (const Node* gather : *gathers) rows.insert(gather->outputs[0]);
    for (Node* node : readers_of(rows)) {
      if (tokens_.contains(node) || weights_.contains(node)) continue;
      if (node == scatter_) {
        if (rows.contains(node->inputs[0]) || rows.contains(node->inputs[1])) return false;
        continue;
      }
      if (!works_by_rows(*node, rows)) return false;
      for (const Value* result : node->outputs)
        if (result) rows.insert(result);
    }
    const auto is_output = [&](const Value* value) { return graph_.is_output(value); };
    return rows.contains(scatter_->inputs[2]) && std::none_of(rows.begin(), rows.end(), is_output) &&
           all_weights_are_columns();
  }

  bool works_by_rows(const Node& node, const std::set<const Value*>& rows) const {
    constexpr std::array<std::string_view, 18> kElementwise = {
        "Add",  "Sub",  "Mul", "Div", "Sigmoid", "Relu", "Gelu", "Swish",    "Erf",
        "Tanh", "Cast", "Pow", "Neg", "Exp",     "Sqrt", "Clip", "Identity", "HardSwish"};
    const auto is_row = [&](const Value* operand) { return operand && rows.contains(operand); };
    const auto is_parameter = [](const Value* operand, size_t most_dims) {
      return !operand || is_stored(operand, most_dims) ||
             (operand->producer && operand->producer->is("Constant") && most_dims > 0);
    };
    if (!node.domain.empty()) return false;
    if (std::find(kElementwise.begin(), kElementwise.end(), node.op_type) != kElementwise.end())
      return std::all_of(node.inputs.begin(), node.inputs.end(),
                         [&](const Value* operand) { return is_row(operand) || is_parameter(operand, 1); });
    if (node.is("MatMul") || node.is("Gemm")) {
      if (node.get_int("transA", 0) != 0 || !is_row(node.inputs[0]) || is_row(node.inputs[1])) return false;
      const Node* turned = node.inputs[1]->producer;
      const Value* matrix = turned && turned->is("Transpose") ? turned->inputs[0] : node.inputs[1];
      return is_stored(matrix, 2) && !is_stored(matrix, 1) && is_parameter(node.input(2), 1);
    }
    if (node.is("Split") || node.is("Slice")) {
      const int64_t axis = node.is("Split") ? node.get_int("axis", 0) : stored_int(node.input(3)).value_or(0);
      return is_row(node.inputs[0]) && (axis == 1 || axis == -1);
    }
    return false;
  }

  /// Whether the file holds the value, with at most so many dimensions, or a stack of which it is a row.
  static bool is_stored(const Value* value, size_t most_dims) {
    if (value->has_data()) return value->data.dims.size() <= most_dims;
    const Node* gather = value->producer;
    if (!gather || !gather->is("Gather") || gather->get_int("axis", 0) != 0) return false;
    const Value *stack = gather->inputs[0], *index = gather->inputs[1];
    return stored_int(index) && index->has_data() && index->data.dims.empty() && is_stored(stack, most_dims + 1);
  }

  /// Weights are gathered one by one, as [n, 1], from [t, c, 1].
  bool all_weights_are_columns() const {
    return std::all_of(weights_.begin(), weights_.end(), [](const Node* gather) {
      const Node* column = gather->inputs[0]->producer;
      return column && column->is("Unsqueeze") &&
             (stored_int(column->inputs[1]) == 2 || stored_int(column->inputs[1]) == -1);
    });
  }

  Value* add(std::string_view type, std::vector<Value*> operands, const Node* before, const std::string& name) {
    return graph_.add_node(type, std::move(operands), {name}, "", before)->outputs[0];
  }

  void apply(const Chosen& found) {
    for (Node* gather : tokens_) graph_.replace_uses(gather->outputs[0], gather->inputs[0]);
    for (Node* gather : weights_) {
      Value* weights = gather->inputs[0]->producer->inputs[0];
      const std::string& name = gather->outputs[0]->name;
      Value* is_chosen = add("Equal", {found.choices, found.number}, gather, name + ".chosen");
      Value* mask = add("CastLike", {is_chosen, weights}, gather, name + ".mask");
      Value* taken = add("Mul", {weights, mask}, gather, name + ".taken");
      Value* column = add("ReduceSum", {taken, graph_.constant_int64({-1})}, gather, name + ".weight");
      column->producer->set("keepdims", int64_t{1});
      graph_.replace_uses(gather->outputs[0], column);
    }
    Value* sum = add("Add", {scatter_->inputs[0], scatter_->inputs[2]}, scatter_, scatter_->outputs[0]->name);
    sum->type = scatter_->outputs[0]->type;
    if (graph_.is_output(scatter_->outputs[0])) {
      const std::string name = scatter_->outputs[0]->name;
      graph_.rename(scatter_->outputs[0], name + ".scattered");
      graph_.rename(sum, name);
    }
    graph_.replace_uses(scatter_->outputs[0], sum);
  }

  Graph& graph_;
  Node* non_zero_;
  const Places& places_;
  Node* scatter_ = nullptr;
  std::set<Node*> tokens_, weights_;
  std::map<const Value*, Part> parts_;
};

bool is_search(const std::unique_ptr<Node>& node) {
  return node->is("NonZero");
}

void spread(Graph& graph) {
  std::vector<Node*> found;
  Spreading::Places places;
  for (const auto& node : graph.nodes()) {
    places.emplace(node.get(), places.size());
    if (is_search(node)) found.push_back(node.get());
  }
  if (found.empty()) return;
  bool any = false;
  for (Node* node : found) any |= Spreading(graph, node, places).run();
  if (any) graph.erase_dead();
}

// The first results of loops that find rows by NonZero, and add to them by ScatterND.
std::vector<std::string> loops_over_experts(const Graph& graph) {
  std::vector<std::string> loops;
  for (const auto& node : graph.nodes()) {
    if (!node->is("Loop")) continue;
    const auto& nodes = region_of(*node, "body").nodes();
    const bool scatters = std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return n->is("ScatterND"); });
    const bool searches = std::any_of(nodes.begin(), nodes.end(), is_search);
    if (scatters && searches && node->output()) loops.push_back(node->output()->name);
  }
  return loops;
}

}  // namespace

void spread_routed_rows(OnnxModel& model) {
  Graph& graph = *model.graph;
  spread(graph);
  // Unrolls a loop only if that leaves no NonZero, for which the model would run in parts.
  for (const std::string& loop : loops_over_experts(graph)) {
    if (!graph.find(loop)) continue;  // it was unused
    OnnxModel trial = model.clone();
    if (!unroll_counted(*trial.graph, trial.graph->find(loop)->producer, RegionOpener::kManyNodes)) continue;
    const auto searches = [](const Graph& in) {
      return std::count_if(in.nodes().begin(), in.nodes().end(), is_search);
    };
    spread(*trial.graph);
    if (searches(*trial.graph) > searches(graph)) continue;
    unroll_counted(graph, graph.find(loop)->producer, RegionOpener::kManyNodes);
    spread(graph);
  }
}

}  // namespace tessera::rewrite
