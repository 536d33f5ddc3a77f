#include "tessera/runtime/kernel_cache.h"

#include <algorithm>

namespace tessera::runtime {
namespace {

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

}  // namespace

std::shared_ptr<kernels::Kernel> KernelCache::kernel(const Value* result, const kernels::PrepareContext& context,
                                                     const Prepare& prepare) {
  std::vector<Entry>& entries = entries_[result];
  std::erase_if(entries, [](const Entry& entry) { return entry.kernel.expired(); });
  for (const Entry& entry : entries) {
    if (entry.op_type != context.node.op_type || entry.known != context.known ||
        !same_descs(entry.inputs, context.inputs) || !same_descs(entry.outputs, context.outputs) ||
        !same_followers(entry.followers, context.followers))
      continue;
    if (auto kernel = entry.kernel.lock()) return kernel;
  }
  std::shared_ptr<kernels::Kernel> kernel = prepare();
  Entry entry{context.node.op_type, {}, context.inputs, context.outputs, context.known, kernel};
  for (const kernels::Follower& follower : context.followers) entry.followers.push_back(follower.node);
  entries.push_back(std::move(entry));
  return kernel;
}

void KernelCache::drop_unused() {
  for (auto& [result, entries] : entries_)
    std::erase_if(entries, [](const Entry& entry) { return entry.kernel.expired(); });
  std::erase_if(entries_, [](const auto& known) { return known.second.empty(); });
}

}  // namespace tessera::runtime
