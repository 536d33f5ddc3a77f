#include "tessera/compiler/inline_annotated.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tessera/onnx/device_annotations.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {
namespace {

// While names change, a tensor is "<1", operand 1 of its node, or ">0", its result 0.
constexpr char kOperand = '<', kResult = '>';

class AnnotatedInliner {
 public:
  AnnotatedInliner(OnnxModel& model, const std::string& name) : model_(model), name_(name) {}

  std::map<std::string, std::string> run() {
    const bool any = std::any_of(model_.functions.begin(), model_.functions.end(),
                                 [&](const Function& function) { return says_something(*function.body); });
    if (!any) return {};
    each_graph([&](Graph& graph) { rewrite_tensors(graph, by_position); });
    each_graph([&](Graph& graph) { wrap_calls(graph); });
    rewrite::inline_functions(model_);
    each_graph([&](Graph& graph) { rewrite_tensors(graph, by_name); });
    return std::move(copies_);
  }

 private:
  template <typename Visit>
  void each_graph(Visit visit) {
    visit(*model_.graph);
    for (Function& function : model_.functions) visit(*function.body);
  }

  bool says_something(const Graph& graph) const {
    return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                       [&](const auto& node) { return said(*node) != nullptr; });
  }

  // What a node says for this configuration; valid until the next call.
  const NodeDevices* said(const Node& node) const {
    said_ = device_annotations(node);
    const auto found = std::find_if(said_.begin(), said_.end(),
                                    [&](const NodeDevices& entry) { return entry.configuration == name_; });
    return found == said_.end() ? nullptr : &*found;
  }

  // Renames tensors in all annotations by `name_of`, and leaves out what it has no name for.
  template <typename NameOf>
  static void rewrite_tensors(Graph& graph, NameOf name_of) {
    for (const auto& node : graph.nodes()) {
      std::vector<NodeDevices> all = device_annotations(*node);
      if (all.empty()) continue;
      for (NodeDevices& entry : all) {
        for (ShardingSpec& spec : entry.specs) spec.tensor = name_of(*node, spec.tensor);
        std::erase_if(entry.specs, [](const ShardingSpec& spec) { return spec.tensor.empty(); });
      }
      set_device_annotations(*node, all);
    }
  }

  static std::string by_position(const Node& node, const std::string& name) {
    const auto place_in = [&](const std::vector<Value*>& values, char kind) {
      for (size_t i = 0; i < values.size(); ++i)
        if (values[i] && values[i]->name == name) return kind + std::to_string(i);
      return std::string();
    };
    const std::string result = place_in(node.outputs, kResult);
    return result.empty() ? place_in(node.inputs, kOperand) : result;
  }

  static std::string by_name(const Node& node, const std::string& place) {
    size_t index = 0;
    std::from_chars(place.data() + 1, place.data() + place.size(), index);
    const Value* value = place[0] == kResult ? node.output(index) : node.input(index);
    return value ? value->name : "";
  }

  void wrap_calls(Graph& graph) {
    for (Node* call : rewrite::nodes_of(graph)) {
      const NodeDevices* annotation = rewrite::inlined_function(model_, *call) ? said(*call) : nullptr;
      if (!annotation) continue;
      const NodeDevices of_call = *annotation;
      set_device_annotations(*call, {});
      for (size_t i = 0; i < call->operand_count(); ++i)
        if (Value* operand = call->input(i)) wrap_operand(graph, call, i, operand, of_call);
      for (size_t i = 0; i < call->outputs.size(); ++i)
        if (call->outputs[i]) wrap_result(graph, call, i, of_call);
    }
  }

  void wrap_operand(Graph& graph, Node* call, size_t index, Value* operand, const NodeDevices& of_call) {
    const auto annotation = annotation_of(of_call, kOperand, index);
    if (!annotation) return;
    Node* copy = graph.add_node("Identity", {operand}, {""}, "", call);
    copy->outputs[0]->type = operand->type;
    set_device_annotations(*copy, {*annotation});
    graph.set_input(call, index, copy->outputs[0]);
    if (&graph == model_.graph.get()) copies_.emplace(copy->outputs[0]->name, operand->name);
  }

  // The result keeps its name, which others know.
  void wrap_result(Graph& graph, Node* call, size_t index, const NodeDevices& of_call) {
    const auto annotation = annotation_of(of_call, kResult, index);
    if (!annotation) return;
    Value* result = call->outputs[index];
    const std::string name = result->name;
    graph.rename(result, name + ".made");
    Node* copy = graph.add_node("Identity", {result}, {name}, "", rewrite::node_after(graph, call));
    Value* given = copy->outputs[0];
    given->type = result->type;
    given->extra = std::exchange(result->extra, "");
    graph.replace_uses(result, given);
    graph.set_input(copy, 0, result);
    set_device_annotations(*copy, {*annotation});
  }

  // What the Identity at a call's operand or result says: the same of what it takes and gives.
  static std::optional<NodeDevices> annotation_of(const NodeDevices& of_call, char kind, size_t index) {
    NodeDevices own{of_call.configuration, {}, of_call.stage};
    for (const ShardingSpec& spec : of_call.specs) {
      if (spec.tensor != kind + std::to_string(index)) continue;
      for (const char side : {kOperand, kResult}) {
        own.specs.push_back(spec);
        own.specs.back().tensor = side + std::string("0");
      }
    }
    return own.specs.empty() && !own.stage ? std::nullopt : std::optional(own);
  }

  OnnxModel& model_;
  const std::string& name_;
  std::map<std::string, std::string> copies_;
  mutable std::vector<NodeDevices> said_;
};

}  // namespace

std::map<std::string, std::string> inline_annotated(OnnxModel& model, const std::string& name) {
  return AnnotatedInliner(model, name).run();
}

}  // namespace tessera::compiler
