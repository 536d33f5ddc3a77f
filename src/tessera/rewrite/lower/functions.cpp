#include "tessera/rewrite/lower/functions.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/ir/regions.h"
#include "tessera/ir/text.h"

namespace tessera::rewrite {
namespace {

std::string plain_domain(const std::string& domain) {
  return domain == "ai.onnx" ? "" : domain;
}

bool is_of(const Function& function, const Node& node) {
  return function.name == node.op_type && function.domain == plain_domain(node.domain);
}

bool takes(const Function& form, const Node& node) {
  return count_present(node.inputs) <= form.body->inputs.size() &&
         std::all_of(form.attributes.begin(), form.attributes.end(),
                     [&](const std::string& name) { return node.find_attribute(name) != nullptr; });
}

/// Whether a call must give that operand: some node takes it as its first or second operand, which is never optional in
/// these texts.
bool is_needed(const Function& form, size_t operand) {
  const std::vector<Use>& uses = form.body->inputs[operand]->uses;
  return std::any_of(uses.begin(), uses.end(), [](const Use& use) {
    const Function* inner = known_function(*use.node);
    return inner ? is_needed(*inner, use.index) : use.index < 2;
  });
}

void require_operands(const Function& form, const Node& call) {
  for (size_t i = 0; i < form.body->inputs.size(); ++i)
    if (!call.input(i) && is_needed(form, i))
      fail("inline", "{}: its operand {} ('{}') is missing; give it", call.label(), i, form.body->inputs[i]->name);
}

Function copy_of(const Function& function) {
  return {function.domain,     function.name,     function.overload,      function.body->clone(),
          function.attributes, function.defaults, function.opset_imports, function.extra};
}

}  // namespace

FunctionKey key_of(const Function& function) {
  return {plain_domain(function.domain), function.name, function.overload};
}

FunctionKey key_of(const Node& node) {
  return {plain_domain(node.domain), node.op_type, node.overload};
}

const std::vector<Function>& known_functions() {
  static const std::vector<Function> all = [] {
    std::vector<Function> functions;
    for (const FunctionText& source : function_texts()) {
      // A model's text begins with a graph.
      OnnxModel model = parse_text("functions () => () {} " + std::string(source.text), source.file);
      for (Function& function : model.functions) {
        function.domain = plain_domain(function.domain);
        functions.push_back(std::move(function));
      }
    }
    return functions;
  }();
  return all;
}

const Function* known_function(const Node& node) {
  if (!node.overload.empty()) return nullptr;
  const Function* last = nullptr;
  for (const Function& form : known_functions()) {
    if (!is_of(form, node)) continue;
    if (takes(form, node)) return &form;
    last = &form;
  }
  return last;
}

size_t count_present(const std::vector<Value*>& values) {
  size_t count = values.size();
  while (count > 0 && !values[count - 1]) --count;
  return count;
}

void add_known_functions(OnnxModel& model) {
  std::set<FunctionKey> own;
  for (const Function& function : model.functions) own.insert(key_of(function));
  std::set<const Function*> added;
  const auto visit = [&](Node& node) {
    if (own.contains(key_of(node))) return;
    const Function* form = known_function(node);
    if (!form) return;
    require_operands(*form, node);
    node.overload = form->overload;
    // The body's values are named after the call.
    if (const Value* first = node.output(); first && node.name.empty()) node.name = first->name;
    if (added.insert(form).second) model.functions.push_back(copy_of(*form));
  };
  for_each_node(*model.graph, visit);
  for (size_t i = 0; i < model.functions.size(); ++i)
    for_each_node(*model.functions[i].body, visit);  // which adds some
}

}  // namespace tessera::rewrite
