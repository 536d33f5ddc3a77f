#include "tessera/dialect/lowered.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/dialect/function_spec.h"
#include "tessera/dialect/library.h"
#include "tessera/dialect/schema.h"
#include "tessera/dialect/tokens.h"
#include "tessera/onnx/metadata.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {

const FunctionCheck::Expected& FunctionCheck::expected(const Spec& spec, const std::string& text) {
  auto [known, fresh] = expected_.try_emplace(text);
  if (!fresh) return known->second;
  Library library(mesh_, form_.handles);
  const std::string name = library.name_of(spec);
  OnnxModel model;
  model.functions = library.take();
  if (form_.tokens)
    thread_tokens(model);
  else
    state_positions(model);
  auto made = std::find_if(model.functions.begin(), model.functions.end(),
                           [&](const Function& function) { return function.name == name; });
  Numbering::Steps steps = numbering_.number(*made, model.functions);
  for (const auto& [number, node] : steps.all) known->second.steps.insert(number);
  known->second.given = std::move(steps.given);
  return known->second;
}

std::string FunctionCheck::flaw_of(const Function& function, const std::vector<Function>& functions) {
  const auto text = get_metadata(function, kFunctionKey);
  const auto spec = stated_spec(function);
  if (!spec) return fmt::format("the function '{}' does not name its collective", function.name);
  const std::string what = fmt::format("{} ({}) over {}", spec->op, spec->form, fmt::join(spec->axes, ","));
  const Numbering::Steps steps = numbering_.number(function, functions);
  try {
    const Expected& wanted = expected(*spec, *text);
    for (const auto& [number, node] : steps.all)
      if (!wanted.steps.contains(number))
        return fmt::format("the function '{}' is not the {} that it claims to be: {} is not a step of it",
                           function.name, what, node->label());
    if (steps.given != wanted.given)
      return fmt::format("the function '{}' is not the {} that it claims to be: steps are missing, or in another order",
                         function.name, what);
  } catch (const Error& error) {
    return fmt::format("the function '{}' claims to be {}, which is impossible: {}", function.name, what, error.what());
  }
  for (const auto& node : function.body->nodes())
    if (const Function* callee = called_by(*node, functions); callee && callee != &function)
      if (std::string flaw = flaw_of(*callee, functions); !flaw.empty()) return flaw;
  return "";
}

namespace {

bool communicates_within(const Function& function, const std::vector<Function>& functions,
                         std::set<const Function*>& seen) {
  if (!seen.insert(&function).second) return false;
  return std::any_of(function.body->nodes().begin(), function.body->nodes().end(), [&](const auto& node) {
    if (communicates(*node)) return true;
    const Function* callee = called_by(*node, functions);
    return callee && communicates_within(*callee, functions, seen);
  });
}

}  // namespace

bool states_or_communicates(const Function& function, const std::vector<Function>& functions) {
  std::set<const Function*> seen;
  return get_metadata(function, kFunctionKey) || communicates_within(function, functions, seen);
}

size_t operand_count(const Function& function) {
  return Library::operand_count(*stated_spec(function));
}

std::unique_ptr<Node> collective_of(const Node& call, const Function& function) {
  const auto spec = stated_spec(function);
  if (!spec) return nullptr;
  const auto kind = collective_of_op(spec->op);
  if (!kind) return nullptr;
  auto node = std::make_unique<Node>();
  node->op_type = spec->op;
  node->domain = spmd::kCommDomain;
  node->name = call.name.empty() ? call.get_string("value", "") : call.name;
  node->attributes = spmd::written({.kind = *kind,
                                    .axes = spec->axes,
                                    .value = call.get_string("value", ""),
                                    .reduction = spec->reduction,
                                    .root = spec->root,
                                    .dim = spec->dim,
                                    .split_dim = spec->dim,
                                    .concat_dim = spec->concat_dim,
                                    .targets = spec->targets});
  return node;
}

}  // namespace tessera::dialect
