#include <algorithm>
#include <map>
#include <set>
#include <typeinfo>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ir/regions.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/functions.h"
#include "tessera/rewrite/passes.h"

// Inlines a function's own calls first (so each body is expanded once, however often it is called), then the graph's.
// Counts the resulting nodes before: f1 calls f0 twice, f2 calls f1 twice, … f30 would be a billion nodes.
namespace tessera::rewrite {
namespace {

constexpr int64_t kMostNodes = 1'000'000;

std::string name_of(const Function& function) {
  return function.domain.empty() ? function.name : function.domain + "." + function.name;
}

const Attribute* named(const std::vector<Attribute>& attributes, std::string_view name) {
  for (const Attribute& candidate : attributes)
    if (candidate.name == name) return &candidate;
  return nullptr;
}

/// Replaces references to the function's attributes by the call's values, else the defaults. Removes a reference to an
/// attribute that has neither, so that the operator's own default holds.
void substitute(std::vector<Attribute>& attributes, const Node& call, const Function& function) {
  std::erase_if(attributes, [&](Attribute& attribute) {
    if (const auto* reference = std::get_if<AttributeReference>(&attribute.value)) {
      const Attribute* value = call.find_attribute(reference->name);
      if (!value) value = named(function.defaults, reference->name);
      if (!value) return true;
      attribute.value = AttributeValue(value->value);
    } else if (auto* region = std::get_if<Region>(&attribute.value)) {
      for (const auto& node : (*region)->nodes()) substitute(node->attributes, call, function);
    }
    return false;
  });
}

/// Gives each node of a body its version of ONNX's operators, since it will be among nodes of other versions.
void stamp_versions(Function& function) {
  for (const char* domain : {"", "ai.onnx"})
    if (auto version = function.opset_imports.find(domain); version != function.opset_imports.end()) {
      for_each_node(*function.body, [&](Node& node) { node.set(kOpsetStamp, version->second); });
      return;
    }
}

class Inliner {
 public:
  explicit Inliner(OnnxModel& model) {
    for (Function& function : model.functions) functions_[key_of(function)] = &function;
    count(*model.graph);
  }

  void expand(Graph& graph) {
    for (Node* node : nodes_of(graph)) {
      for (Graph* region : node->regions()) expand(*region);
      Function* function = called(*node);
      if (!function) continue;
      if (ready_.insert(function).second) {
        stamp_versions(*function);
        expand(*function->body);
      }
      inline_call(graph, node, *function);
    }
  }

 private:
  Function* called(const Node& node) const {
    const auto found = functions_.find(key_of(node));
    return found == functions_.end() || is_our_own(*found->second) ? nullptr : found->second;
  }

  /// Counts the nodes of the graph with every call inlined, and of every function on the way; at most kMostNodes in
  /// all.
  int64_t count(const Graph& graph) {
    int64_t nodes = 0;
    for_each_node(graph, [&](const Node& node) {
      const Function* function = called(node);
      nodes += function ? count(*function) : 1;
      if (nodes > kMostNodes)
        fail("inline",
             "{}: with its calls of functions inlined the model has more than {} nodes; export it without functions",
             node.label(), kMostNodes);
    });
    return nodes;
  }

  int64_t count(const Function& function) {
    constexpr int64_t kOpen = -1;
    auto [known, fresh] = sizes_.emplace(&function, kOpen);
    if (fresh) {
      int64_t nodes = count(*function.body);
      return sizes_[&function] = nodes;
    }
    if (known->second == kOpen)
      fail("inline", "the function '{}' calls itself; ONNX functions must not be recursive", name_of(function));
    return known->second;
  }

  void inline_call(Graph& graph, Node* call, const Function& function) {
    const size_t operands = count_present(call->inputs), results = count_present(call->outputs);
    if (operands > function.body->inputs.size() || results > function.body->outputs.size())
      fail("inline", "{}: the function '{}' takes {} and gives {}; the call has {} and {}", call->label(),
           name_of(function), counted(function.body->inputs.size(), "operand"),
           counted(function.body->outputs.size(), "result"), operands, results);
    std::map<const Value*, Value*> body_values;
    std::unique_ptr<Graph> body = function.body->clone(&body_values);
    const std::string prefix = call->name.empty() ? call->op_type : call->name;
    std::map<const Value*, Value*> mapped;
    for (size_t i = 0; i < body->inputs.size(); ++i) mapped[body->inputs[i]] = call->input(i);
    const std::set<const Value*> outside = [&] {
      std::set<const Value*> given;
      for (const auto& [inside, value] : mapped) given.insert(value);
      return given;
    }();
    for (Node* node : splice(graph, *body, mapped, call, prefix)) {
      substitute(node->attributes, *call, function);
      if (node->domain != "tessera.comm") node->set(kCallStamp, call->label());  // their attributes are fixed
    }
    for (const auto& [inside, value] : mapped)
      if (!outside.contains(value)) value->extra.clear();  // the function's notes on the value
    for (size_t i = 0; i < call->outputs.size(); ++i) {
      Value* result = call->outputs[i];
      if (!result) continue;
      Value* value = mapped.at(body->outputs[i]);
      if (!value)
        fail("inline", "{}: result {} of the function '{}' is its operand {}, which the call leaves out", call->label(),
             i, name_of(function), body->outputs[i]->name);
      TensorType type = result->type;
      const std::string extra = result->extra;
      if (!replace(graph, result, value)) {
        Value* copy = graph.add_node("Identity", {value}, {""}, "", call)->outputs[0];
        replace(graph, result, copy);
        value = copy;
      }
      if (value->kind == ValueKind::result && value->type.dtype == DType::undefined) value->type = type;
      if (value->kind == ValueKind::result && value->extra.empty()) value->extra = extra;
    }
    graph.erase(call);
  }

  std::map<FunctionKey, Function*> functions_;
  std::map<const Function*, int64_t> sizes_;  ///< nodes of the bodies once expanded
  std::set<const Function*> ready_;           ///< whose bodies are expanded
};

}  // namespace

bool is_our_own(const Function& function) {
  return ops::find_op(function.name, function.domain == "ai.onnx" ? "" : function.domain) != nullptr;
}

const Function* inlined_function(const OnnxModel& model, const Node& node) {
  const auto found = std::find_if(model.functions.begin(), model.functions.end(),
                                  [&](const Function& function) { return key_of(function) == key_of(node); });
  if (found == model.functions.end()) return known_function(node);
  return is_our_own(*found) ? nullptr : &*found;
}

void drop_stamps(Graph& graph) {
  for (Node* node : nodes_of(graph))
    for (std::string_view stamp : {kOpsetStamp, kCallStamp}) node->remove_attribute(stamp);
}

void naming_call(const Node& node, const std::function<void()>& step) {
  const auto* stamp = node.get<std::string>(kCallStamp);
  if (!stamp) return step();
  const std::string call = *stamp;  // the step may erase the node
  try {
    step();
  } catch (const Error& error) {
    if (typeid(error) != typeid(Error)) throw;  // its catcher needs the type
    throw Error(error.kind(), error.stage(), fmt::format("{}: in its function, {}", call, error.message()));
  }
}

void inline_functions(OnnxModel& model) {
  add_known_functions(model);
  if (model.functions.empty()) return;
  Inliner(model).expand(*model.graph);
  model.functions.clear();
}

}  // namespace tessera::rewrite
