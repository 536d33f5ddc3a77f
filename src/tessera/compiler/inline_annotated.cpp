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

  InlinedAnnotations run() {
    size_t followed = 0;
    for (const Function& function : model_.functions)
      (rewrite::is_our_own(function) ? inlined_.ignored : followed) += count_annotated(*function.body, name_);
    if (followed == 0) return inlined_;
    each_graph([&](Graph& graph) { rewrite_tensors(graph, by_position); });
    each_graph([&](Graph& graph) { wrap_calls(graph); });
    rewrite::inline_functions(model_);
    each_graph([&](Graph& graph) { rewrite_tensors(graph, by_name); });
    return inlined_;
  }

 private:
  template <typename Visit>
  static void each_graph_in(Graph& graph, const Visit& visit) {
    visit(graph);
    for (const auto& node : graph.nodes())
      for (Graph* region : node->regions()) each_graph_in(*region, visit);
  }
  template <typename Visit>
  void each_graph(const Visit& visit) {
    each_graph_in(*model_.graph, visit);
    for (Function& function : model_.functions) each_graph_in(*function.body, visit);
  }

  // Renames tensors in all annotations by `name_of`, and removes those that it has no name for.
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
      if (!rewrite::inlined_function(model_, *call)) continue;
      const std::optional<NodeDevices> of_call = device_annotation(*call, name_);
      if (!of_call) continue;
      set_device_annotations(*call, {});
      const std::vector<Value*> operands(call->inputs.begin(),
                                         call->inputs.begin() + static_cast<int64_t>(call->operand_count()));
      for (size_t i = 0; i < operands.size(); ++i) {
        // An operand's annotation applies to all operands that are the same value.
        const auto first = std::find(operands.begin(), operands.end(), operands[i]) - operands.begin();
        if (operands[i]) wrap_operand(graph, call, i, annotation_of(*of_call, kOperand, static_cast<size_t>(first)));
      }
      for (size_t i = 0; i < call->outputs.size(); ++i)
        if (call->outputs[i]) wrap_result(graph, call, i, annotation_of(*of_call, kResult, i));
    }
  }

  void wrap_operand(Graph& graph, Node* call, size_t index, const std::optional<NodeDevices>& annotation) {
    if (!annotation) return;
    Value* operand = call->inputs[index];
    Node* copy = graph.add_node("Identity", {operand}, {operand->name + ".as"}, "", call);
    copy->outputs[0]->type = operand->type;
    set_device_annotations(*copy, {*annotation});
    graph.set_input(call, index, copy->outputs[0]);
    if (&graph == model_.graph.get()) inlined_.copies.emplace(copy->outputs[0]->name, operand->name);
  }

  // The result keeps its name, which others know.
  void wrap_result(Graph& graph, Node* call, size_t index, const std::optional<NodeDevices>& annotation) {
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

  // The annotation of the Identity at a call's operand or result: the same for its operand and its result.
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
  InlinedAnnotations inlined_;
};

}  // namespace

InlinedAnnotations inline_annotated(OnnxModel& model, const std::string& name) {
  return AnnotatedInliner(model, name).run();
}

}  // namespace tessera::compiler
