#include "tessera/dialect/buckets.h"

#include <set>

#include "tessera/bind/frame.h"

namespace tessera::bind {
namespace {

NodeGroup group_of(const std::vector<const Node*>& bucket) {
  NodeGroup group{bucket.front(), {}, {}, {}};
  group.bucket = bucket;
  for (const Node* node : bucket) {
    group.inputs.push_back(node->inputs[0]);
    group.outputs.push_back(node->outputs[0]);
  }
  return group;
}

}  // namespace

// Collectives of one bucket become one group, in the turn of the last. What reads a result of another of them comes
// behind it; as written by us, the program has nothing between them, but tools may have moved nodes there.
void Binding::join_buckets() {
  const std::vector<std::vector<const Node*>> buckets = dialect::buckets_of(*program_.graph);
  if (buckets.empty()) return;
  std::map<const Node*, const std::vector<const Node*>*> bucket_of;
  for (const auto& bucket : buckets)
    if (bucket.size() > 1)
      for (const Node* node : bucket) bucket_of[node] = &bucket;
  std::vector<NodeGroup> joined, late;
  std::set<const Value*> to_come;  // results of the open bucket, and of what comes behind it
  for (NodeGroup& group : frame_->groups) {
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
  frame_->groups = std::move(joined);
}

}  // namespace tessera::bind
