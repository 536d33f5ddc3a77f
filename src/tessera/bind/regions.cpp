#include "tessera/bind/regions.h"

#include <algorithm>

namespace tessera::bind {
namespace {

const Node* maker_of(const NodeGroup& group) {
  for (const Value* result : group.outputs)
    if (result) return result->producer;
  return group.root;
}

}  // namespace

Regions regions_of(const Graph& graph, const std::vector<NodeGroup>& groups) {
  Regions regions{flow::flow_of(graph), std::vector<int>(groups.size(), -1)};
  if (regions.empty()) return regions;
  for (size_t g = 0; g < groups.size(); ++g) regions.of_group[g] = regions.flow.of(maker_of(groups[g]));
  return regions;
}

std::vector<Span> spans_of_regions(const Regions& regions, const std::vector<Span>& spans_of_groups, int actions) {
  const auto& all = regions.flow.regions;
  std::vector<Span> spans(all.size(), {actions, -1});
  if (regions.empty()) return spans;
  for (size_t g = 0; g < spans_of_groups.size(); ++g)
    for (int region = regions.of_group[g]; region >= 0; region = all[region].parent) {
      Span& span = spans[region];
      span = {std::min(span.begin, spans_of_groups[g].begin), std::max(span.end, spans_of_groups[g].end)};
    }
  return spans;
}

std::vector<int> sections_of(const Regions& regions, const std::vector<NodeGroup>& groups) {
  const auto is_first = [&](size_t g) {
    const Node& node = *groups[g].root;
    return flow::role_of(node) == flow::Role::loop || flow::role_of(node) == flow::Role::carry;
  };
  std::vector<int> section(groups.size(), 0);
  for (size_t g = 1; g < section.size(); ++g) {
    const Node& before = *groups[g - 1].root;
    const bool begins = regions.of_group[g] != regions.of_group[g - 1] || is_first(g) != is_first(g - 1) ||
                        flow::role_of(before) == flow::Role::branch || flow::role_of(before) == flow::Role::again;
    section[g] = section[g - 1] + (begins ? 1 : 0);
  }
  return section;
}

}  // namespace tessera::bind
