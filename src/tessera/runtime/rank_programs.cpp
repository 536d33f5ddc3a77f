#include "tessera/runtime/rank_programs.h"

#include "tessera/base/error.h"
#include "tessera/ir/aligned.h"

namespace tessera::runtime {

std::shared_ptr<const RankPrograms> RankPrograms::same(std::shared_ptr<const spmd::Program> program) {
  auto all = std::make_shared<RankPrograms>();
  all->programs.push_back(std::move(program));
  return all;
}

const Tensor* RankPrograms::shard_of(int rank, const std::string& state) const {
  if (shards.empty()) return nullptr;
  const Shards& own = shards[shards_of[rank]];
  auto found = own.find(state);
  check(found != own.end(), fmt::format("rank {} has a shard of '{}'", rank, state));
  return &found->second;
}

Tensor RankPrograms::aligned_once(Tensor shard) const {
  if (is_aligned(shard)) return shard;
  std::lock_guard lock(aligned_->mutex);
  auto& shared = aligned_->copies[{shard.data, shard.bytes}];
  if (auto copy = shared.lock()) {
    shard.data = static_cast<const std::byte*>(copy.get());
    shard.owner = std::move(copy);
  } else {
    shard = aligned(std::move(shard));
    shared = shard.owner;
  }
  return shard;
}

}  // namespace tessera::runtime
