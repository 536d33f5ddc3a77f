#include "tessera/runtime/rank_programs.h"

#include "tessera/base/error.h"

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

}  // namespace tessera::runtime
