#include "tessera/train/index_ranges.h"

#include <fmt/format.h>

#include <set>

#include "tessera/ops/op.h"

namespace tessera::train {
namespace {

bool keeps_elements(const Node& node) {
  const ops::Moves moves = ops::moves_of(node);
  return node.is("Cast") || moves == ops::Moves::all || moves == ops::Moves::in_order;
}

// What an operand is made from by moves and casts alone: the table of a tied copy, or of 16 bits.
const Value& origin_of(const Value& value) {
  const Value* origin = &value;
  while (origin->producer && keeps_elements(*origin->producer)) origin = origin->producer->input(0);
  return *origin;
}

class Tracer {
 public:
  Tracer(const Value& input, std::vector<IndexRange>& ranges) : input_(input), ranges_(ranges) {}

  void follow(const Value& value) {
    for (const Use& use : value.uses) {
      const Node& node = *use.node;
      const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
      if (!op) continue;
      if (op->indices && use.index > 0) add(node, op->indices(node), use.index);
      if (use.index == 0 && keeps_elements(node))
        for (const Value* result : node.outputs)
          if (result && seen_.insert(result).second) follow(*result);
    }
  }

 private:
  void add(const Node& node, const ops::Indices& indices, size_t operand) {
    const Value& table = origin_of(*node.input(0));
    if (indices.operand != operand || indices.extents.size() != 1 || !table.has_data()) return;
    if (const auto extent = indices.extents[0].constant())
      ranges_.push_back({input_.name, *extent, std::nullopt,
                         fmt::format("the places in '{}' that {} looks up", table.name, node.label())});
  }

  const Value& input_;
  std::vector<IndexRange>& ranges_;
  std::set<const Value*> seen_;
};

}  // namespace

std::vector<IndexRange> lookups(const Graph& graph) {
  std::vector<IndexRange> ranges;
  for (const Value* input : graph.inputs)
    if (is_integer(input->dtype())) Tracer(*input, ranges).follow(*input);
  return ranges;
}

}  // namespace tessera::train
