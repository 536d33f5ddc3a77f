#include "tessera/bind/uses.h"

#include <algorithm>

namespace tessera::bind {
namespace {

void add_uses_by_later_iterations(Uses& uses, const std::vector<NodeGroup>& groups, const Values& values,
                                  const Regions& regions, const std::vector<Span>& region_spans) {
  const auto& all = regions.flow.regions;
  std::map<const Value*, int> made_in;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Value* result : groups[g].outputs)
      if (result) made_in.emplace(values.home(result), regions.of_group[g]);
  const auto add_end = [&](const Value* value, int region) {
    const int end = region_spans[region].end;
    uses.add(value, {end, end});
  };
  for (size_t g = 0; g < groups.size(); ++g) {
    const Node& root = *groups[g].root;
    if (flow::role_of(root) == flow::Role::loop || flow::role_of(root) == flow::Role::carry)
      add_end(root.outputs[0], regions.of_group[g]);
    for (const Value* operand : groups[g].inputs) {
      if (!operand) continue;
      const auto made = made_in.find(values.home(operand));
      const int from = made == made_in.end() ? -1 : made->second;
      for (int region = regions.of_group[g]; region >= 0 && !regions.flow.is_within(from, region);
           region = all[region].parent)
        if (all[region].is_loop()) add_end(values.home(operand), region);
    }
  }
}

}  // namespace

const std::vector<Span>& Uses::of(const Value* home) const {
  static const std::vector<Span> none;
  auto uses = spans_.find(home);
  return uses == spans_.end() ? none : uses->second;
}

int Uses::last(const Value* home) const {
  int last = -1;
  for (const Span& use : of(home)) last = std::max(last, use.end);
  return last;
}

Uses uses_of(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values, const Regions& regions,
             const Order& order) {
  Uses uses;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Value* operand : groups[g].inputs)
      if (operand) uses.add(values.home(operand), order.spans[g]);
  const Span after{order.end(), order.end()};
  for (const Value* output : subject.graph().outputs) uses.add(values.home(output), after);
  for (const auto& value : subject.graph().values()) {
    if (value->next) uses.add(values.home(value->next), after);
    if (subject.options.keep_all) uses.add(values.home(value.get()), after);
  }
  if (!regions.empty())
    add_uses_by_later_iterations(uses, groups, values, regions, spans_of_regions(regions, order.spans, order.end()));
  return uses;
}

}  // namespace tessera::bind
