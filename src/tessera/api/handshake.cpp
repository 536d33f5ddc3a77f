#include "tessera/api/handshake.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"
#include "tessera/ir/hash.h"
#include "tessera/spmd/print.h"

namespace tessera::api {
namespace {

struct Aspect {
  std::string_view name, mend;
};
constexpr std::array<Aspect, 4> kAspects = {{
    {"the version of tessera", "install one version on all machines"},
    {"the mesh", "give all ranks the same --mesh"},
    {"the program", "give all ranks the same model and the same options"},
    {"the data of the weights", "give all ranks the same model file"},
}};
using Fingerprint = std::array<uint64_t, kAspects.size()>;

uint64_t hash_of(std::string_view text) {
  Hash hash;
  hash.add(text);
  return hash.value();
}

constexpr HashSample kOfWeights{32, 64};  // of another training, they differ everywhere

Fingerprint fingerprint_of(const runtime::RankPrograms& programs, std::string_view version) {
  Hash program, weights;
  for (int of_rank : programs.program_of) program.add(std::to_string(of_rank));
  for (const auto& one : programs.programs) {
    program.add(spmd::print_program(*one));
    for (const auto& value : one->graph->values())
      if (auto initial = one->initial.find(value.get()); initial != one->initial.end())
        weights.add(initial->second, kOfWeights);
  }
  for (const auto& shards : programs.shards)
    for (const auto& [name, shard] : shards) weights.add(shard, kOfWeights);
  return {hash_of(version), hash_of(programs.mesh().str()), program.value(), weights.value()};
}

}  // namespace

void shake_hands(comm::Communicator& everyone, const runtime::RankPrograms& programs, std::string_view version) {
  const Fingerprint own = fingerprint_of(programs, version);
  std::vector<Fingerprint> all(everyone.size());
  const std::vector<int64_t> counts(all.size(), own.size());
  everyone.run({.kind = comm::Kind::all_gather,
                .dtype = DType::uint64,
                .in = own.data(),
                .out = all.data(),
                .counts = counts,
                .label = "handshake",
                .joins = true});
  for (size_t a = 0; a < kAspects.size(); ++a) {
    std::vector<int> others;
    for (size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank][a] != all[0][a]) others.push_back(static_cast<int>(rank));
    if (others.empty()) continue;
    fail("handshake", "{} of {} is not that of rank 0; {}", kAspects[a].name, comm::rank_text(others),
         kAspects[a].mend);
  }
}

}  // namespace tessera::api
