#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compare.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/tolerance.h"
#include "tessera/ops/op.h"

namespace tessera {
inline namespace v1 {
namespace {

using Types = std::map<const Value*, DType>;

bool is_16_bit_float(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

// The 16-bit type in which the node computes the result; none if the node only moves elements or computes them from
// integers. Without inference, types in a file may be unknown, but a Cast states its own.
std::optional<DType> computed_by(const Node& node, const Value& result) {
  const bool casts = node.is("Cast") && node.domain.empty();
  const DType dtype = casts ? static_cast<DType>(node.get_int("to", 0)) : result.dtype();
  if (!is_16_bit_float(dtype) || (!casts && ops::moves_of(node) != ops::Moves::nothing)) return std::nullopt;
  if (const Value* operand = node.input(0); casts && operand)
    if (is_integer(operand->dtype()) || operand->dtype() == DType::boolean) return std::nullopt;
  return dtype;
}

// Notes the type for the value if it is narrower than the one known so far; returns whether it was.
bool narrow(Types& types, const Value* value, DType dtype) {
  const auto [known, fresh] = types.try_emplace(value, dtype);
  if (fresh) return true;
  if (tolerance_of(dtype).relative <= tolerance_of(known->second).relative) return false;
  known->second = dtype;
  return true;
}

void narrow_all(Types& types, const Node& node, DType dtype, bool& changed) {
  for (const Value* result : node.outputs)
    if (result) changed |= narrow(types, result, dtype);
}

void narrow_by_regions(Types& types, const Node& node, const Graph& region, bool& changed) {
  for (const auto& inner : region.nodes()) {
    for (const Value* result : inner->outputs)
      if (const auto dtype = result ? computed_by(*inner, *result) : std::nullopt)
        narrow_all(types, node, *dtype, changed);
    for (const Graph* nested : inner->regions()) narrow_by_regions(types, node, *nested, changed);
  }
}

// One pass in running order; returns whether anything was found. Values that a loop carries need another pass.
bool narrow_once(Types& types, const Graph& graph) {
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    for (size_t i = 0; i < node->inputs.size(); ++i)
      if (const auto found = types.find(node->inputs[i]); found != types.end() && ops::reads_elements(*node, i))
        narrow_all(types, *node, DType(found->second), changed);
    for (const Value* result : node->outputs)
      if (const auto dtype = result ? computed_by(*node, *result) : std::nullopt)
        changed |= narrow(types, result, *dtype);
    for (const Graph* region : node->regions()) narrow_by_regions(types, *node, *region, changed);
    if (!flow::is(*node, "Next")) continue;
    if (const auto next = types.find(node->input(0)); next != types.end())
      changed |= narrow(types, node->input(2), DType(next->second));
  }
  return changed;
}

}  // namespace

std::map<std::string, DType> computed_in(const Model& model) {
  const Graph* graph = model.impl().model.graph.get();
  try {
    graph = model.impl().rewritten().graph.get();  // which knows all types
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;  // it runs in parts
  }
  Types types;
  while (narrow_once(types, *graph)) continue;
  std::map<std::string, DType> narrower;
  for (const auto& [value, dtype] : types)
    if (const double own = tolerance_of(value->dtype()).relative; own > 0 && own < tolerance_of(dtype).relative)
      narrower.emplace(value->name, dtype);
  return narrower;
}

}  // namespace v1
}  // namespace tessera
