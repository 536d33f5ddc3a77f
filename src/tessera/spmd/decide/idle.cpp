#include "tessera/spmd/decide/idle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/base/saturated.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {
namespace {

/// An operator that an axis splits.
struct SplitNode {
  const Node* node = nullptr;
  Expr size;          // of the split factor
  int64_t parts = 0;  // ranks along the axis that get any of it
  double flops = 0;   // of the whole operator
};

std::map<AxisRef, std::vector<SplitNode>> nodes_by_axis(const Layout& layout, const Decisions& decisions,
                                                        const Hints& hints) {
  std::map<AxisRef, std::vector<SplitNode>> found;
  for (size_t n = 0; n < layout.nodes.size(); ++n) {
    const NodeLayout& node = layout.nodes[n];
    for (size_t s = 0; s < node.subfactors.size(); ++s) {
      auto left = saturated(hinted(node.subfactors[s].size, hints));  // after the first major axes
      for (const AxisRef& axis : decisions.nodes[n].axes[s]) {
        found[axis].push_back(
            {node.node, node.subfactors[s].size, std::min(left, axis.size), hinted(ops::flops_of(*node.node), hints)});
        left = (left + axis.size - 1) / axis.size;
      }
    }
  }
  return found;
}

double flops_of(const std::vector<SplitNode>& nodes) {
  double flops = 0;
  for (const SplitNode& node : nodes) flops += node.flops;
  return flops;
}

/// Operators that an axis splits into the same number of parts, the largest first.
using Group = std::vector<SplitNode>;

/// The groups that leave ranks idle, by number of parts; if there are many, those with the most work.
std::map<int64_t, Group> idling(const std::vector<SplitNode>& nodes, int64_t ranks) {
  constexpr size_t kMost = 3;
  std::map<int64_t, Group> groups;
  for (const SplitNode& node : nodes)
    if (node.parts < ranks) groups[node.parts].push_back(node);
  for (auto& [parts, group] : groups)
    std::stable_sort(group.begin(), group.end(),
                     [](const SplitNode& a, const SplitNode& b) { return a.flops > b.flops; });
  while (groups.size() > kMost)
    groups.erase(std::min_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
      return flops_of(a.second) < flops_of(b.second);
    }));
  return groups;
}

std::string size_text(const Expr& size, const Hints& hints) {
  if (size.is_constant()) return size.str();
  return fmt::format("{} = {}", size.str(), hinted(size, hints));
}

}  // namespace

std::vector<std::string> idle_ranks(const Layout& layout, const Decisions& decisions, const Mesh& mesh,
                                    const Hints& hints) {
  std::vector<std::string> warnings;
  for (auto& [axis, nodes] : nodes_by_axis(layout, decisions, hints)) {
    // An operator that only moves elements is not worth a warning, unless there are no others.
    const double flops = flops_of(nodes);
    if (flops > 0) std::erase_if(nodes, [](const SplitNode& node) { return node.flops == 0; });
    const std::map<int64_t, Group> groups = idling(nodes, axis.size);
    if (groups.empty()) continue;
    const std::string name = axis.str(mesh);
    std::string text;
    bool symbolic = false;
    for (const auto& [parts, group] : groups) {
      Group below;  // operators with as few parts, or fewer
      for (const SplitNode& node : nodes)
        if (node.parts <= parts) below.push_back(node);
      const int64_t last = axis.size - 1;
      text += fmt::format("{}{} of the {} ranks, at {}={}", text.empty() ? "" : "; ",
                          mesh.size() / axis.size * (axis.size - parts), mesh.size(), name, parts);
      if (parts < last) text += fmt::format(" to {}={}", name, last);
      text += ", idle";
      if (below.size() < nodes.size()) {
        text += fmt::format(" in {} of the {} operators that {} splits", below.size(), nodes.size(), name);
        if (flops > 0) text += fmt::format(" ({:.3g} % of their FLOPs)", 100 * flops_of(below) / flops);
      }
      text +=
          fmt::format(": {} is split along {} only", group.front().node->label(), size_text(group.front().size, hints));
      symbolic |= !group.front().size.is_constant();
    }
    text += fmt::format("; give {} fewer ranks{}", name, symbolic ? ", or larger `shapes`" : "");
    warnings.push_back(std::move(text));
  }
  return warnings;
}

}  // namespace tessera::spmd
