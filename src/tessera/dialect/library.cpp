#include "tessera/dialect/library.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/dialect/forms.h"
#include "tessera/dialect/function_spec.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

enum class Operands { data, blocks, exchange, none };

struct Form {
  std::string_view op, name;
  Operands operands;
  Value* (*write)(Body&);
};

constexpr Form kForms[] = {
    {"AllReduce", "ring", Operands::data, ring_all_reduce},
    {"AllReduce", "doubling", Operands::data, doubling_all_reduce},
    {"AllReduce", "hierarchical", Operands::data, hierarchical_all_reduce},
    {"ReduceScatter", "ring", Operands::blocks, ring_reduce_scatter},
    {"ReduceScatter", "exchange", Operands::blocks, exchange_reduce_scatter},
    {"AllGather", "ring", Operands::blocks, ring_all_gather},
    {"AllToAll", "pairwise", Operands::exchange, pairwise_all_to_all},
    {"Broadcast", "tree", Operands::data, tree_broadcast},
    {"Reduce", "tree", Operands::data, tree_reduce},
    {"Scatter", "direct", Operands::blocks, direct_scatter},
    {"Gather", "direct", Operands::blocks, direct_gather},
    {"Permute", "direct", Operands::data, direct_permute},
    {"Barrier", "dissemination", Operands::none, dissemination_barrier},
    {"AxisIndex", "arithmetic", Operands::none, axis_index},
    {"Neighbor", "arithmetic", Operands::none, neighbor},
};

const Form& form_of(const Spec& spec) {
  for (const Form& form : kForms)
    if (form.op == spec.op && form.name == spec.form) return form;
  fail_running("internal", "there is no form '{}' of {}", spec.form, spec.op);
}

bool reduces(const Spec& spec) {
  const auto collective = collective_of_op(spec.op);
  return collective && traits_of(*collective).reduces;
}

// Everything that distinguishes a function, as a C identifier: "ReduceScatter_ring_tp_sum_dim0".
std::string key_of(const Spec& spec, Operands operands) {
  std::string key = fmt::format("{}_{}_{}", spec.op, spec.form, fmt::join(spec.axes, "_"));
  if (reduces(spec)) key += fmt::format("_{}", name_of(spec.reduction));
  if (spec.boolean && reduces(spec)) key += "_bool";
  if (spec.float32) key += "_float32";
  if (operands == Operands::blocks || operands == Operands::exchange) key += fmt::format("_dim{}", spec.dim);
  if (operands == Operands::exchange) key += fmt::format("_dim{}", spec.concat_dim);
  if (const auto collective = collective_of_op(spec.op); collective && traits_of(*collective).root != RootRole::none)
    key += fmt::format("_root{}", spec.root);
  if (spec.op == "Neighbor") key += fmt::format("_offset{}", spec.offset);
  if (spec.op == "Permute") key += fmt::format("_to{}", fmt::join(spec.targets, "_"));
  return key;
}

std::vector<std::string> operands_of(Operands operands) {
  switch (operands) {
    case Operands::data:
      return {"data", "rank"};
    case Operands::blocks:
      return {"data", "bounds", "rank"};
    case Operands::exchange:
      return {"data", "send_bounds", "recv_bounds", "rank"};
    case Operands::none:
      return {"rank"};
  }
  return {};
}

std::vector<std::string> attributes_of(const Spec& spec) {
  if (spec.op == "AxisIndex" || spec.op == "Neighbor") return {};
  return {"value", "dtype"};
}

}  // namespace

size_t Library::operand_count(const Spec& spec) {
  return operands_of(form_of(spec).operands).size() - 1;
}

std::string Library::name_of(const Spec& spec) {
  const Form& form = form_of(spec);
  std::string key = key_of(spec, form.operands);
  if (auto known = names_.find(key); known != names_.end()) return known->second;
  std::string name = key;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  while (!taken_.insert(name).second) name += "_";
  Function function;
  function.domain = spmd::kCommDomain;
  function.name = names_[key] = name;
  function.attributes = attributes_of(spec);
  function.opset_imports = {{"", rewrite::kCanonicalOpset}, {std::string(spmd::kCommDomain), 1}};
  state_spec(function, spec);
  function.body = std::make_unique<Graph>();
  for (const std::string& operand : operands_of(form.operands)) function.body->add_input(operand, {});
  Body body(*function.body, spec, *this);
  Value* result = spec.float32 ? float32_reduction(body) : form.write(body);
  if (result) {
    // One of a function's nodes must make its result, which needs a name of its own.
    if (result->kind != ValueKind::result) result = body.op("Identity", {result});
    function.body->outputs.push_back(result);
  }
  functions_.push_back(std::move(function));
  return name;
}

std::string form_for(std::string_view op, const std::vector<std::string>& axes, int64_t members, double bytes) {
  if (op == "AllReduce" && (bytes <= kSmallBytes || members > kMostBlocks)) return "doubling";
  if (op == "AllReduce") return axes.size() > 1 ? "hierarchical" : "ring";
  if (op == "ReduceScatter") return bytes <= kSmallBytes ? "exchange" : "ring";
  for (const Form& form : kForms)
    if (form.op == op) return std::string(form.name);
  fail_running("internal", "{} is not an operator with a form", op);
}

}  // namespace tessera::dialect
