#include "tessera/bind/buckets.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "tessera/dialect/buckets.h"

namespace tessera::bind {
namespace {

NodeGroup group_of(const std::vector<const Node*>& bucket) {
  NodeGroup group;
  group.root = bucket.front();
  group.bucket = bucket;
  for (const Node* node : bucket) {
    group.inputs.push_back(node->inputs[0]);
    group.outputs.push_back(node->outputs[0]);
  }
  return group;
}

}  // namespace

void join_buckets(const Graph& graph, Grouping& grouping) {
  const std::vector<std::vector<const Node*>> buckets = dialect::buckets_of(graph);
  if (buckets.empty()) return;
  std::map<const Node*, const std::vector<const Node*>*> bucket_of;
  for (const auto& bucket : buckets)
    if (bucket.size() > 1)
      for (const Node* node : bucket) bucket_of[node] = &bucket;
  const auto home = [&](const Value* value) {
    auto view = grouping.views.find(value);
    return view == grouping.views.end() ? value : view->second.base;
  };
  std::vector<NodeGroup> joined, late;
  std::set<const Value*> to_come;  // results of the open bucket, and of nodes after it
  for (NodeGroup& group : grouping.groups) {
    const auto found = bucket_of.find(group.root);
    const bool waits = std::any_of(group.inputs.begin(), group.inputs.end(),
                                   [&](const Value* operand) { return operand && to_come.contains(home(operand)); });
    if (found == bucket_of.end()) {
      if (waits)
        for (const Value* result : group.outputs) to_come.insert(result ? home(result) : nullptr);
      (waits ? late : joined).push_back(std::move(group));
      continue;
    }
    const std::vector<const Node*>& bucket = *found->second;
    for (const Value* result : group.outputs) to_come.insert(home(result));
    if (group.root != bucket.back()) continue;
    joined.push_back(group_of(bucket));
    std::move(late.begin(), late.end(), std::back_inserter(joined));
    late.clear();
    to_come.clear();
  }
  grouping.groups = std::move(joined);
}

}  // namespace tessera::bind
