#include "tessera/passes/ring_collective.h"

#include <algorithm>

#include "tessera/passes/product_pieces.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {

std::variant<RingCollective, std::string> ring_collective(const spmd::Program& program, const flow::Flow& flow,
                                                          const Node& node) {
  const spmd::CollectiveAttributes collective = spmd::read_collective(node, program.mesh);
  if (flow.of(&node) >= 0) return "it is in a loop or branch";
  if (node.inputs.size() != 1 || !node.inputs[0]) return "ranks without a part take part in it";
  const auto in = program.placements.find(node.inputs[0]), out = program.placements.find(node.outputs[0]);
  if (in == program.placements.end() || out == program.placements.end()) return "it is a step of an operator";
  const bool gathers = collective.kind == Collective::all_gather;
  const Sharding &whole = (gathers ? out : in)->second.sharding, &piece = (gathers ? in : out)->second.sharding;
  if (!whole.at.empty() || !piece.at.empty()) return "its value lives at a place";
  const auto dim = static_cast<size_t>(collective.dim);
  if (whole.dims[dim].parts.size() != 1 || piece.dims[dim].parts.size() != 1)
    return "its dimension is a product of parts";
  auto axes =
      axes_between(whole.dims[dim].parts[0], piece.dims[dim].parts[0], parse_axes(collective.axes, program.mesh));
  if (!axes) return "its dimension is split otherwise";
  return RingCollective{dim, std::move(*axes), in->second.name};
}

std::variant<Node*, std::string> summed_product(const spmd::Program& program, const Node& node) {
  if (spmd::read_collective(node, program.mesh).reduction != Reduction::sum) return "it reduces otherwise than by sum";
  if (node.inputs.size() != 1 || !node.inputs[0]) return "ranks without a part take part in it";
  const Value* whole = node.inputs[0];
  if (!whole->producer || !is_product(*whole->producer)) return "what it reduces is not made by a product";
  const bool is_output = std::any_of(program.outputs.begin(), program.outputs.end(),
                                     [&](const spmd::Port& port) { return port.value == whole; });
  if (whole->uses.size() != 1 || is_output) return "other nodes read the product, too";
  return whole->producer;
}

}  // namespace tessera::passes
