#include "tessera/spmd/decide/why.h"

#include <fmt/format.h>

namespace tessera::spmd {
namespace {

// "dimension 1 of 'w'": another place along which a subfactor runs, besides that operand.
std::string elsewhere(const NodeLayout& node, size_t subfactor, size_t operand) {
  for (const Place& place : node.subfactors[subfactor].places) {
    if (!place.result && place.tensor == static_cast<int>(operand)) continue;
    const Value* tensor = place.result ? node.node->outputs[static_cast<size_t>(place.tensor)]
                                       : node.node->inputs[static_cast<size_t>(place.tensor)];
    if (tensor) return fmt::format("dimension {} of '{}'", place.dim, tensor->name);
  }
  return "";
}

}  // namespace

std::string why_gathered(const NodeLayout& node, const NodeDecision& decision, size_t index, const Sharding& from,
                         const Mesh& mesh) {
  const Sharding& wanted = decision.operands[index];
  for (size_t d = 0; d < from.dims.size(); ++d)
    for (const Part& part : from.dims[d].parts)
      for (const AxisRef& axis : part.axes) {
        bool kept = false;
        for (const Part& other : wanted.dims[d].parts)
          for (const AxisRef& same : other.axes) kept = kept || same.overlaps(axis);
        if (kept || axis.size == 1) continue;
        int sub = -1;  // the major one
        for (size_t p = 0; p < wanted.dims[d].parts.size() && sub < 0; ++p) sub = subfactor_along(node, index, d, p);
        if (sub < 0 || !node.subfactors[static_cast<size_t>(sub)].splittable)
          return fmt::format("the operator needs dimension {} whole", d);
        if (overlaps(node.at, axis)) return fmt::format("the node runs at one index of {}", axis.str(mesh));
        for (size_t s = 0; s < node.subfactors.size(); ++s) {
          if (static_cast<int>(s) == sub) continue;
          for (const AxisRef& other : decision.axes[s])
            if (const std::string place = other.overlaps(axis) ? elsewhere(node, s, index) : ""; !place.empty())
              return fmt::format("{} splits {} there", axis.str(mesh), place);
        }
        const std::string place = elsewhere(node, static_cast<size_t>(sub), index);
        return place.empty() ? fmt::format("whole along dimension {}, it moves fewer bytes in all", d)
                             : fmt::format("{} is not split over {}", place, axis.str(mesh));
      }
  return "";
}

}  // namespace tessera::spmd
