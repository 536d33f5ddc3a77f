#include "tessera/dialect/buckets.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

template <typename... Args>
[[noreturn]] void refuse(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
  fail("dialect", "{}: {}; write the program again, or leave out the attribute bucket", node.label(),
       fmt::format(format, std::forward<Args>(args)...));
}

bool are_alike(const Node& one, const Node& other) {
  const spmd::CollectiveAttributes a = spmd::read_collective(one), b = spmd::read_collective(other);
  return a.kind == b.kind && a.axes == b.axes && a.reduction == b.reduction &&
         one.output(0)->dtype() == other.output(0)->dtype();
}

}  // namespace

std::vector<std::vector<const Node*>> buckets_of(const Graph& graph) {
  std::vector<std::vector<const Node*>> buckets;
  std::map<int64_t, size_t> numbered;
  const Node* last = nullptr;         // communication
  std::set<const Value*> after_last;  // results of the last one's bucket, and what is made of them
  for (const auto& node : graph.nodes()) {
    const bool waits = std::any_of(node->inputs.begin(), node->inputs.end(),
                                   [&](const Value* operand) { return operand && after_last.contains(operand); });
    const auto* number = communicates(*node) ? node->get<int64_t>(spmd::kBucketAttribute) : nullptr;
    if (number) {
      const bool whole = node->input(0) && node->output(0) && node->get<std::vector<std::string>>("axes");
      if (!whole || !traits_of(*kind_of(*node)).joins || bits_of(node->output(0)->dtype()) % 8 != 0)
        refuse(*node, "it cannot share a bucket");
      auto [known, fresh] = numbered.emplace(*number, buckets.size());
      if (fresh) {
        buckets.emplace_back();
        after_last.clear();
      } else if (const Node& first = *buckets[known->second].front(); buckets[known->second].back() != last) {
        refuse(*node, "{} comes between it and {}, though both are in bucket {}", last->label(), first.label(),
               *number);
      } else if (waits) {
        refuse(*node, "it depends on another collective of bucket {}", *number);
      } else if (!are_alike(first, *node)) {
        refuse(*node, "it is in bucket {}, as {}, and differs from it in kind, axes, reduction or type", *number,
               first.label());
      }
      buckets[known->second].push_back(node.get());
    } else if (communicates(*node)) {
      after_last.clear();
    }
    if (communicates(*node)) last = node.get();
    if (number || waits) after_last.insert(node->outputs.begin(), node->outputs.end());
  }
  return buckets;
}

}  // namespace tessera::dialect
