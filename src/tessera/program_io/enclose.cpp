#include "tessera/program_io/enclose.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/rewrite/edit.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

using Place = std::vector<PlacedAxis>;

class Encloser {
 public:
  Encloser(Graph& graph, const Enclosure& enclosure) : graph_(graph), enclosure_(enclosure) {}

  void run() {
    for (Node* node : rewrite::nodes_of(graph_)) {
      const Place place = place_of(*node);
      if (place.empty() && !closes(*node)) continue;
      if (!run_.empty() && place != place_) close(node);
      if (place.empty()) continue;
      place_ = place;
      run_.push_back(node);
      in_run_.insert(node);
    }
    close(nullptr);
    graph_.sort();
  }

 private:
  Place place_of(const Node& node) const {
    auto found = enclosure_.places.find(&node);
    return found == enclosure_.places.end() ? Place() : found->second;
  }

  // Whether a node that runs everywhere must come after this sequence of placed nodes, because it depends on it, or
  // because its order matters.
  bool closes(const Node& node) {
    const bool depends = std::any_of(node.inputs.begin(), node.inputs.end(), [&](const Value* operand) {
      return operand && in_run_.contains(operand->producer);
    });
    return depends || node.domain == spmd::kCommDomain;
  }

  // The branch's result needs its own name, since the If's result has the value's name.
  std::string fresh(const std::string& name, std::string_view suffix) const {
    std::string wanted = name + std::string(suffix);
    while (graph_.find(wanted)) wanted += "_";
    return wanted;
  }

  bool is_used_outside(const Value* value) const {
    return graph_.is_output(value) || std::any_of(value->uses.begin(), value->uses.end(),
                                                  [&](const Use& use) { return !in_run_.contains(use.node); });
  }

  struct Branch {
    std::unique_ptr<Graph> graph = std::make_unique<Graph>();
    std::map<const Value*, Value*> known;
  };

  // An outer value, by its name in the branch.
  Value* inside(Branch& branch, Value* outside, Node& node) {
    auto found = branch.known.find(outside);
    if (found != branch.known.end()) return found->second;
    if (std::find(node.captures.begin(), node.captures.end(), outside->name) == node.captures.end()) {
      node.captures.push_back(outside->name);
      node.inputs.push_back(outside);
    }
    Value* made = branch.graph->add_value(outside->name, ValueKind::input, outside->type);
    return branch.known[outside] = made;
  }

  void close(const Node* before) {
    if (run_.empty()) return;
    auto choice = std::make_unique<Node>();
    choice->op_type = "If";
    choice->inputs = {enclosure_.condition(place_)};
    std::vector<Value*> results;
    for (const Node* node : run_)
      for (Value* result : node->outputs)
        if (result && is_used_outside(result)) results.push_back(result);
    // Names must differ from those outside.
    std::map<Value*, Value*> given;
    for (Value* result : results) {
      const std::string name = result->name;
      graph_.rename(result, fresh(name, ".inside"));
      Value* outside = graph_.add_value(name, ValueKind::result, result->type);
      outside->extra = result->extra;
      given[result] = outside;
      choice->outputs.push_back(outside);
    }
    Branch here, elsewhere;
    here.graph->name = "here";
    elsewhere.graph->name = "elsewhere";
    for (const Node* node : run_) {
      auto twin = std::make_unique<Node>(*node);
      for (Value*& operand : twin->inputs)
        if (operand) operand = inside(here, operand, *choice);
      for (Value*& result : twin->outputs) {
        if (!result) continue;
        Value* made = here.graph->add_value(result->name, ValueKind::result, result->type);
        made->extra = result->extra;
        result = here.known[result] = made;
      }
      here.graph->adopt_node(std::move(twin));
    }
    for (Value* result : results) {
      here.graph->outputs.push_back(here.known.at(result));
      Value* extents = inside(elsewhere, enclosure_.extents(*result), *choice);
      Node* zeros = elsewhere.graph->add_node("ConstantOfShape", {extents}, {fresh(given[result]->name, ".elsewhere")});
      zeros->set("value", Tensor::zeros(result->dtype(), {1}));
      zeros->outputs[0]->type = result->type;
      elsewhere.graph->outputs.push_back(zeros->outputs[0]);
    }
    choice->set("then_branch", Region(std::move(here.graph)));
    choice->set("else_branch", Region(std::move(elsewhere.graph)));
    graph_.adopt_node(std::move(choice), before);
    for (Value* result : results) graph_.replace_uses(result, given[result]);
    for (auto node = run_.rbegin(); node != run_.rend(); ++node) graph_.erase(*node);
    run_.clear();
    in_run_.clear();
  }

  Graph& graph_;
  const Enclosure& enclosure_;
  Place place_;
  std::vector<Node*> run_;
  std::set<const Node*> in_run_;
};

}  // namespace

void enclose_placed(Graph& graph, const Enclosure& enclosure) {
  Encloser(graph, enclosure).run();
}

}  // namespace tessera::program_io
