#include "stages/crossings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "stages/graphs.h"

namespace tessera::stages::test {

std::vector<Crossing> crossings(const Graph& graph, const Stages& stages, const Symbols& sizes) {
  const std::function<double(const Node&)> none;
  const Measure measure(sizes, none);
  const OneBatch batch(graph);
  const Roles roles = roles_of(graph, batch, measure);
  int last = 0;
  for (int i = 0; i < batch.size(); ++i)
    if (roles.is_staged(i)) last = std::max(last, stages.of(batch.node(i)));
  std::vector<bool> gradient(static_cast<size_t>(batch.size()));
  std::vector<Crossing> found;
  std::set<std::tuple<const Value*, int, bool>> known;
  for (int i = 0; i < batch.size(); ++i) {
    const int to = stages.of(batch.node(i));
    for (const auto& [value, made_by] : batch.operands(i)) {
      if (made_by < 0) continue;
      const int from = stages.of(batch.node(made_by));
      const bool forward = roles.is_forward(made_by);
      if (!roles.is_forward(i))
        gradient[static_cast<size_t>(i)] = gradient[static_cast<size_t>(i)] || (forward && from == last) ||
                                           (!forward && gradient[static_cast<size_t>(made_by)]);
      if (from < 0 || to < 0 || from == to || !known.emplace(value, to, roles.is_forward(i)).second) continue;
      found.push_back({value->name, from, to, forward, roles.is_forward(i), measure.is_scalar(*value),
                       !forward && gradient[static_cast<size_t>(made_by)], measure.bytes(*value)});
    }
  }
  return found;
}

void expect_ordered(const OnnxModel& model, const Stages& stages) {
  std::set<std::pair<std::string, int>> forward;
  const std::vector<Crossing> all = crossings(*model.graph, stages, sizes());
  for (const Crossing& each : all)
    if (each.to_forward) forward.emplace(each.value, each.to);
  for (const Crossing& each : all) {
    const std::string text = fmt::format("'{}' from {} to {}", each.value, each.from, each.to);
    if (each.to_forward) {
      EXPECT_LT(each.from, each.to) << text;
    } else if (each.of_forward) {
      EXPECT_TRUE(each.scalar || forward.contains({each.value, each.to})) << text;
    } else if (each.gradient && !each.scalar) {
      EXPECT_GT(each.from, each.to) << text;
    }
  }
}

void expect_updates_at_home(const OnnxModel& model, const Stages& stages) {
  const Symbols all = sizes();
  const std::function<double(const Node&)> none;
  const OneBatch batch(*model.graph);
  const Roles roles = roles_of(*model.graph, batch, Measure(all, none));
  std::map<std::string, int> homes;
  std::vector<const Value*> followers;
  for (const Value* state : model.graph->values_of(ValueKind::state)) {
    if (!state->next || state->data.count() <= 1) continue;
    int first = -1;
    for (const Use& use : state->uses)
      if (const int reader = batch.index_of(*use.node); roles.is_staged(reader))
        first = first < 0 ? stages.of(*use.node) : std::min(first, stages.of(*use.node));
    if (first < 0) {
      followers.push_back(state);
    } else {
      EXPECT_EQ(stages.of(*state->next->producer), first) << state->name;
      homes[state->name + "."] = first;
    }
  }
  for (const Value* state : followers) {
    const std::string owner = state->name.substr(0, state->name.rfind('.') + 1);
    const auto home = homes.lower_bound(owner);
    ASSERT_TRUE(home != homes.end() && home->first.starts_with(owner)) << state->name;
    EXPECT_EQ(stages.of(*state->next->producer), home->second) << state->name;
  }
}

}  // namespace tessera::stages::test
