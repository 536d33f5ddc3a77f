#include "tessera/bind/kernel_cache.h"

#include <algorithm>

#include "tessera/ir/hash.h"

namespace tessera::bind {
namespace {

constexpr size_t kMostEntries = 32;  // of one node, before entries without a kernel are removed

bool same_desc(const kernels::TensorDesc& a, const kernels::TensorDesc& b) {
  return a.dtype == b.dtype && a.dims == b.dims && a.block == b.block && a.strides == b.strides;
}

bool same_descs(const std::vector<kernels::TensorDesc>& a, const std::vector<kernels::TensorDesc>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_desc);
}

bool same_followers(const std::vector<const Node*>& nodes, const std::vector<kernels::Follower>& followers) {
  return std::equal(nodes.begin(), nodes.end(), followers.begin(), followers.end(),
                    [](const Node* node, const kernels::Follower& follower) { return node == follower.node; });
}

uint64_t hash_of(const kernels::PrepareContext& context) {
  Hash hash;
  hash.add(context.node.op_type);
  for (const auto* descs : {&context.inputs, &context.outputs})
    for (const kernels::TensorDesc& desc : *descs)
      for (const Dims* numbers : {&desc.dims, &desc.strides})
        for (int64_t number : *numbers) hash.add(static_cast<uint64_t>(number));
  return hash.value();
}

}  // namespace

std::shared_ptr<kernels::Kernel> KernelCache::kernel(const Value* result, const kernels::PrepareContext& context,
                                                     const Prepare& prepare) {
  std::vector<Entry>& entries = entries_[result];
  // Compares hashes first, since comparing lists touches scattered memory, and a decoder has a dozen plans.
  const uint64_t hash = hash_of(context);
  for (const Entry& entry : entries) {
    if (entry.hash != hash || entry.op_type != context.node.op_type || entry.known != context.known ||
        !same_descs(entry.inputs, context.inputs) || !same_descs(entry.outputs, context.outputs) ||
        !same_followers(entry.followers, context.followers))
      continue;
    if (auto kernel = entry.kernel.lock()) return kernel;
  }
  std::shared_ptr<kernels::Kernel> kernel = prepare();
  if (entries.size() >= kMostEntries) std::erase_if(entries, [](const Entry& entry) { return entry.kernel.expired(); });
  Entry entry{hash, context.node.op_type, {}, context.inputs, context.outputs, context.known, kernel};
  for (const kernels::Follower& follower : context.followers) entry.followers.push_back(follower.node);
  entries.push_back(std::move(entry));
  return kernel;
}

void KernelCache::drop_unused() {
  for (auto& [result, entries] : entries_)
    std::erase_if(entries, [](const Entry& entry) { return entry.kernel.expired(); });
  std::erase_if(entries_, [](const auto& known) { return known.second.empty(); });
}

}  // namespace tessera::bind
