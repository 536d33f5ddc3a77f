#include "tessera/dialect/branches.h"

#include <algorithm>
#include <set>

#include "tessera/dialect/schema.h"
#include "tessera/mesh/sharding.h"
#include "tessera/onnx/metadata.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

class Chooser {
 public:
  Chooser(Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh) {}

  std::vector<Expr> conditions() {
    std::vector<Expr> all;
    for (Node* node : rewrite::nodes_of(graph_))
      if (const auto condition = condition_of(*node)) all.push_back(*condition);
    return all;
  }

  void choose(int64_t rank) {
    const std::vector<int64_t> coordinates = mesh_.coordinates(rank);
    std::vector<std::pair<Node*, std::string_view>>
        chosen;  // chosen before any branch can settle the condition of another If
    for (Node* node : rewrite::nodes_of(graph_))
      if (const auto condition = condition_of(*node))
        chosen.emplace_back(node, bind_rank(*condition, mesh_, coordinates).is(0) ? "else_branch" : "then_branch");
    for (const auto& [node, branch] : chosen) unfold(node, **node->get<Region>(branch));
  }

 private:
  // For an If whose branch can be chosen.
  std::optional<Expr> condition_of(const Node& node) {
    if (!node.is("If")) return std::nullopt;
    for (std::string_view name : {"then_branch", "else_branch"})
      if (!node.get<Region>(name)) return std::nullopt;
    Value* condition = node.input(0);
    if (!condition || !settle(condition)) return std::nullopt;
    const auto content = rewrite::contents(condition);
    if (!content || content->size() != 1 || !follows_from_rank(content->front())) return std::nullopt;
    return content->front();
  }

  static bool follows_from_rank(const Expr& element) {
    std::set<std::string> symbols;
    element.collect_symbols(symbols);
    return std::all_of(symbols.begin(), symbols.end(), [](const std::string& name) { return name.starts_with('@'); });
  }

  // Finds the elements of a value, after those of all values that it is computed from; false if other ranks or branches
  // contribute to it.
  bool settle(Value* value) {
    Node* node = value->producer;
    if (!node || !settled_.insert(node).second) return true;
    if (communicates(*node) || !node->regions().empty()) return false;
    for (Value* operand : node->inputs)
      if (operand && !settle(operand)) return false;
    if (node->domain == spmd::kCommDomain) {
      check_node(*node, mesh_);
      infer_node(*node, mesh_);
    } else {
      ops::op_of(*node).infer(*node);
    }
    return true;
  }

  // A branch must give a result of its own, for which copies exist; a copy stays only if its metadata name another
  // value than its operand's.
  static bool is_copy(const Node& node) {
    if (!node.is("Identity")) return false;
    const auto metadata = all_metadata(*node.output());
    return metadata.empty() || metadata == all_metadata(*node.input(0));
  }

  void unfold(Node* node, const Graph& branch) {
    std::set<const Value*> made;
    std::map<const Value*, Value*> outside;
    for (size_t c = 0; c < node->captures.size(); ++c)
      if (const Value* inside = branch.find(node->captures[c]))
        outside[inside] = node->inputs[node->operand_count() + c];
    for (const auto& value : branch.values()) {
      if (outside.contains(value.get()) || (value->producer && is_copy(*value->producer))) continue;
      Value* twin = graph_.add_value(value->name, value->kind, value->type);
      twin->data = value->data;
      twin->content = value->content;
      twin->extra = value->extra;
      twin->data_extra = value->data_extra;
      outside[value.get()] = twin;
    }
    for (const auto& inner : branch.nodes()) {
      if (is_copy(*inner)) {
        outside[inner->output()] = outside.at(inner->input(0));
        continue;
      }
      auto twin = std::make_unique<Node>(*inner);
      for (Value*& operand : twin->inputs) operand = operand ? outside.at(operand) : nullptr;
      for (Value*& result : twin->outputs) {
        result = result ? outside.at(result) : nullptr;
        made.insert(result);
      }
      graph_.adopt_node(std::move(twin), node);
    }
    for (size_t r = 0; r < node->outputs.size(); ++r) {
      Value *result = node->outputs[r], *value = outside.at(branch.outputs.at(r));
      if (!result) continue;
      const bool is_fresh = made.erase(value) > 0;  // a value takes one name
      if (!is_fresh && (!graph_.is_output(result) || is_token(*value))) {
        graph_.replace_uses(result, value);
        continue;
      }
      if (!is_fresh) {
        value = graph_.add_node("Identity", {value}, {""}, "", node)->outputs[0];
        value->type = result->type;
        value->extra = branch.outputs[r]->extra;
      }
      give_way(result, value);
    }
    graph_.erase(node);
  }

  // Tokens stand for no data, and nobody reads the last one by name.
  static bool is_token(const Value& value) {
    const Node* node = value.producer;
    return node && communicates(*node) && &value == node->output(find_schema(node->op_type)->results.size());
  }

  void give_way(Value* result, Value* value) {
    const std::string name = result->name;
    graph_.replace_uses(result, value);
    graph_.rename(result, name + ".branches");
    graph_.rename(value, name);
    if (result->has_shape()) value->type = result->type;
  }

  Graph& graph_;
  const Mesh& mesh_;
  std::set<const Node*> settled_;
};

}  // namespace

std::vector<Expr> branch_conditions(Graph& graph, const Mesh& mesh) {
  return Chooser(graph, mesh).conditions();
}

void choose_branches(Graph& graph, const Mesh& mesh, int64_t rank) {
  Chooser(graph, mesh).choose(rank);
}

}  // namespace tessera::dialect
