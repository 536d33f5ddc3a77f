#include "tessera/program_io/init_model.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/dialect/foreign.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/kept_nodes.h"
#include "tessera/ir/text.h"
#include "tessera/ir/transplant.h"
#include "tessera/program_io/lowering.h"

namespace tessera::program_io {
namespace {

using FunctionName = std::tuple<std::string, std::string, std::string>;

FunctionName name_of(const Function& function) {
  return {function.domain, function.name, function.overload};
}

// Also looks in its graphs and in the function that it calls.
bool communicates(const OnnxModel& model, const Node& node) {
  if (dialect::communicates(node) || dialect::is_foreign(node)) return true;
  const auto any = [&](const Graph& graph) {
    return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                       [&](const auto& inner) { return communicates(model, *inner); });
  };
  for (const Graph* region : node.regions())
    if (any(*region)) return true;
  return std::any_of(model.functions.begin(), model.functions.end(), [&](const Function& function) {
    return name_of(function) == FunctionName{node.domain, node.op_type, node.overload} && any(*function.body);
  });
}

bool can_run_once(const OnnxModel& model, const Node& node) {
  if (!node.captures.empty() || communicates(model, node)) return false;
  return std::none_of(node.inputs.begin(), node.inputs.end(), [](const Value* operand) {
    return operand && ((operand->kind == ValueKind::input && operand->name != kRankInput) || operand->changing);
  });
}

Function copy_of(const Function& function) {
  return {function.domain,     function.name,     function.overload,      function.body->clone(),
          function.attributes, function.defaults, function.opset_imports, function.extra};
}

void collect_calls(const OnnxModel& model, const Graph& graph, std::set<FunctionName>& called) {
  for (const auto& node : graph.nodes()) {
    for (const Graph* region : node->regions()) collect_calls(model, *region, called);
    for (const Function& function : model.functions)
      if (name_of(function) == FunctionName{node->domain, node->op_type, node->overload} &&
          called.insert(name_of(function)).second)
        collect_calls(model, *function.body, called);
  }
}

// Without functions that are not called.
void drop_uncalled(OnnxModel& model) {
  std::set<FunctionName> called;
  collect_calls(model, *model.graph, called);
  std::erase_if(model.functions, [&](const Function& function) { return !called.contains(name_of(function)); });
}

std::string text_of(const Node& node) {
  std::string text = node.domain + "." + node.op_type + "." + node.overload + "(";
  for (const Value* operand : node.inputs) text += (operand ? operand->name : "") + ",";
  text += ")";
  Graph alone;
  Node* copy = alone.add_node(node.op_type, {}, {"result"}, node.domain);
  copy->attributes = node.attributes;
  return text + print_text(alone, {.elide_above = std::numeric_limits<int64_t>::max()});
}

// Whether the nodes compute the same, and these are all results of the first.
bool is_same(const Node& own, const Node& other, const std::vector<Value*>& results) {
  const bool as_here = std::all_of(own.outputs.begin(), own.outputs.end(), [&](const Value* result) {
    return !result || std::find(results.begin(), results.end(), result) != results.end();
  });
  return as_here && text_of(own) == text_of(other);
}

std::string text_of(const Function& function) {
  return print_text(*function.body, {.elide_above = std::numeric_limits<int64_t>::max()});
}

}  // namespace

std::optional<OnnxModel> take_init(OnnxModel& model, const std::vector<std::string>& names) {
  Graph& step = *model.graph;
  std::vector<Value*> results;
  for (const std::string& name : names) {
    Value* result = step.find(name);
    if (!result || !result->producer || step.is_output(result)) continue;
    const std::set<const Node*> makers = makers_of(step, {result});
    if (std::all_of(makers.begin(), makers.end(), [&](const Node* node) { return can_run_once(model, *node); }))
      results.push_back(result);
  }
  if (results.empty()) return std::nullopt;

  OnnxModel init;
  init.ir_version = model.ir_version;
  init.opset_imports = model.opset_imports;
  init.extra = model.extra;
  init.graph->name = step.name + ".init";
  const std::set<const Node*> makers = makers_of(step, results);
  Transplant transplant(*init.graph);
  for (const auto& node : step.nodes()) {
    if (!makers.contains(node.get())) continue;
    std::vector<Value*> made;
    for (const Value* result : node->outputs) {
      made.push_back(result ? init.graph->add_value(result->name, ValueKind::result, result->type) : nullptr);
      if (result) made.back()->extra = result->extra;
    }
    check(transplant.copy(*node, std::move(made)), "the new graph is empty");
  }
  for (Value* result : results) {
    init.graph->outputs.push_back(transplant.at(result));
    std::vector<Value*>& of_maker = std::exchange(result->producer, nullptr)->outputs;
    std::replace(of_maker.begin(), of_maker.end(), result, static_cast<Value*>(nullptr));
    result->kind = ValueKind::input;
    step.inputs.push_back(result);
  }
  {
    const KeptNodes kept(step, [&](const Node& node) { return communicates(model, node); });
    step.erase_dead();
  }
  for (const Value* state : init.graph->values_of(ValueKind::state))
    if (Value* left = step.find(state->name); left && left->uses.empty() && !step.is_output(left)) step.erase(left);
  for (const Function& function : model.functions) init.functions.push_back(copy_of(function));
  drop_uncalled(model);
  drop_uncalled(init);
  step.verify("write");
  init.graph->verify("write");
  return init;
}

void put_back_init(OnnxModel& model, const OnnxModel& init, const std::string& source) {
  Graph& step = *model.graph;
  const auto refuse = [&](const std::string& what) {
    fail("program", "'{}' does not match the model whose states it computes: {}; write the program again", source,
         what);
  };
  for (const Function& function : init.functions) {
    const auto same = std::find_if(model.functions.begin(), model.functions.end(),
                                   [&](const Function& other) { return name_of(other) == name_of(function); });
    if (same == model.functions.end())
      model.functions.push_back(copy_of(function));
    else if (text_of(*same) != text_of(function))
      refuse(fmt::format("the function '{}' differs", function.name));
  }
  const std::vector<Value*>& made = init.graph->outputs;
  Transplant transplant(step);
  for (const auto& node : init.graph->nodes()) {
    std::vector<Value*> results;
    Node* own = nullptr;  // both models need the node
    for (Value* result : node->outputs) {
      Value* known = result ? step.find(result->name) : nullptr;
      if (known && known->producer) own = known->producer;
      if (known && known->kind == ValueKind::input && std::find(made.begin(), made.end(), result) != made.end()) {
        std::erase(step.inputs, known);
        known->kind = ValueKind::result;
      } else if (known && known->kind != ValueKind::result) {
        refuse(fmt::format("'{}' is not a result there", known->name));
      } else if (result && !known) {
        known = step.add_value(result->name, ValueKind::result, result->type);
        known->extra = result->extra;
      }
      results.push_back(known);
    }
    if (own && is_same(*own, *node, results)) {
      for (Value*& result : results)
        if (result && result->producer) result->producer = nullptr;
      own->outputs.clear();
      step.erase(own);
    } else if (own) {  // a tool has changed one of the two, so each model keeps its own
      for (Value*& result : results)
        if (result && result->producer) result = step.add_value(result->name, ValueKind::result, result->type);
    }
    if (!transplant.copy(*node, std::move(results)))
      refuse(fmt::format("an operand of {} is of another type there", node->label()));
  }
  step.sort();
}

}  // namespace tessera::program_io
