#include "tessera/compiler/inner_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/compiler/labels.h"
#include "tessera/onnx/device_annotations.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {
namespace {

class Labeller {
 public:
  explicit Labeller(OnnxModel& model) : model_(model) { find_left_out(); }

  std::vector<std::string> run() {
    struct Inner {
      Graph* graph;
      Node* node;
      size_t index;
    };
    std::vector<Inner> all;
    for_each_inner_node(model_, [&](Graph& graph, Node& node, size_t index) { all.push_back({&graph, &node, index}); });
    for (const Inner& inner : all) label_results(*inner.graph, inner.node, inner.index);
    for (const Inner& inner : all) label_operands(*inner.graph, inner.node, inner.index);
    return std::move(labels_);
  }

 private:
  // Inputs of functions that some call leaves out or fills with such an input, and captures of these in bodies.
  void find_left_out() {
    size_t before = 0;
    do {
      before = left_out_.size();
      look_at_calls(*model_.graph);
      for (const Function& function : model_.functions) look_at_calls(*function.body);
    } while (left_out_.size() > before);
  }

  void look_at_calls(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
      for (const Graph* region : node->regions()) {
        for (size_t c = 0; c < node->captures.size(); ++c)
          if (const Value* inside = region->find(node->captures[c]);
              inside && left_out_.contains(node->inputs[node->operand_count() + c]))
            left_out_.insert(inside);
        look_at_calls(*region);
      }
      const Function* function = rewrite::inlined_function(model_, *node);
      if (!function) continue;
      for (size_t i = 0; i < function->body->inputs.size(); ++i)
        if (const Value* given = node->input(i); !given || left_out_.contains(given))
          left_out_.insert(function->body->inputs[i]);
    }
  }

  // The node's annotation of its result moves along.
  void label_results(Graph& graph, Node* node, size_t index) {
    if (node->is("Constant")) return;
    for (Value* result : std::vector<Value*>(node->outputs)) {
      if (!result) continue;
      labels_.push_back(inner_label(index, InnerRole::result, result->name));
      names_[labelled_instead(graph, result, labels_.back())] = result->name;
    }
  }

  void label_operands(Graph& graph, Node* node, size_t index) {
    std::map<std::string, std::string> renamed;
    std::map<Value*, Value*> copies;
    for (size_t i = 0; i < node->operand_count(); ++i) {
      Value* operand = node->inputs[i];
      if (!operand || left_out_.contains(operand) || rewrite::needs_value(*node, i)) continue;
      const auto read = names_.find(operand);  // the name in the file
      const std::string& name = read == names_.end() ? operand->name : read->second;
      Value*& copied = copies[operand];
      if (!copied) {
        labels_.push_back(inner_label(index, InnerRole::operand, name));
        copied = labelled_copy(graph, operand, labels_.back(), node);
      }
      graph.set_input(node, i, copied);
      renamed.emplace(name, copied->name);
    }
    std::vector<NodeDevices> said = device_annotations(*node);
    for (NodeDevices& entry : said)
      for (ShardingSpec& spec : entry.specs)
        if (const auto found = renamed.find(spec.tensor); found != renamed.end()) spec.tensor = found->second;
    if (!said.empty()) set_device_annotations(*node, said);
  }

  OnnxModel& model_;
  std::set<const Value*> left_out_;
  std::map<const Value*, std::string> names_;
  std::vector<std::string> labels_;
};

}  // namespace

void for_each_inner_node(const OnnxModel& model, const std::function<void(Graph&, Node&, size_t)>& visit) {
  size_t index = 0;
  const std::function<void(Graph&, bool)> look_at = [&](Graph& graph, bool is_inner) {
    for (const auto& node : graph.nodes()) {
      for (Graph* region : node->regions()) look_at(*region, true);
      if (is_inner) visit(graph, *node, index++);
    }
  };
  look_at(*model.graph, false);
  for (const Function& function : model.functions)
    if (!rewrite::is_our_own(function)) look_at(*function.body, true);
}

std::string inner_label(size_t index, InnerRole role, const std::string& tensor) {
  return fmt::format("{}inner/{}/{}/{}", rewrite::kLabelPrefix, index, role == InnerRole::result ? "result" : "operand",
                     tensor);
}

std::vector<std::string> label_inner_tensors(OnnxModel& model) {
  return Labeller(model).run();
}

}  // namespace tessera::compiler
