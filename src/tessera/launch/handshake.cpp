#include "tessera/launch/handshake.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"
#include "tessera/comm/hosts.h"
#include "tessera/ir/hash.h"
#include "tessera/spmd/print.h"

namespace tessera::launch {
namespace {

struct Aspect {
  std::string_view name, fix;
};
constexpr std::array<Aspect, 4> kAspects = {{
    {"the version of tessera", "install one version on all machines"},
    {"the mesh", "give all ranks the same `mesh`"},
    {"the program", "give all ranks the same model and the same options"},
    {"the constants or the weights' types", "give all ranks the same model file"},
}};

/// A rank's statements about itself.
struct Fingerprint {
  std::array<uint64_t, kAspects.size()> aspects{};
  uint64_t copy = 0;  // of the weights
};
constexpr int64_t kWords = sizeof(Fingerprint) / sizeof(uint64_t);

uint64_t hash_of(std::string_view text) {
  Hash hash;
  hash.add(text);
  return hash.value();
}

/// The program's text elides long tensors.
void add_constants(const Graph& graph, Hash& hash) {
  for (const auto& value : graph.values())
    if (value->kind == ValueKind::constant) hash.add(value->data);
  for (const auto& node : graph.nodes()) {
    for (const Attribute& attribute : node->attributes)
      if (const auto* tensor = std::get_if<Tensor>(&attribute.value)) hash.add(*tensor);
    for (const Graph* region : node->regions()) add_constants(*region, hash);
  }
}

/// If not all weights are from files, or the files are unknown, each rank has a copy of its own.
uint64_t copy_of(const runtime::RankPrograms& programs, int rank) {
  Hash hash;
  hash.add(static_cast<uint64_t>(comm::this_host()));
  bool known = !programs.files.empty();
  for (uint64_t file : programs.files) {
    hash.add(file);
    known &= file != 0;
  }
  if (!known) hash.add(static_cast<uint64_t>(rank) + 1);
  return hash.value();
}

Fingerprint fingerprint_of(const runtime::RankPrograms& programs, std::string_view version, int rank) {
  Hash program, data;
  for (int of_rank : programs.program_of) program.add(std::to_string(of_rank));
  for (const auto& one : programs.programs) {
    program.add(spmd::print_program(*one));
    add_constants(*one->graph, data);
    if (one->init) add_constants(*one->init, data);
    for (const auto& value : one->graph->values())
      if (auto initial = one->initial.find(value.get()); initial != one->initial.end()) data.add_type(initial->second);
  }
  for (const auto& shards : programs.shards)
    for (const auto& [name, shard] : shards) data.add_type(shard);
  return {{hash_of(version), hash_of(programs.mesh().str()), program.value(), data.value()}, copy_of(programs, rank)};
}

}  // namespace

std::vector<uint64_t> shake_hands(comm::Communicator& everyone, const runtime::RankPrograms& programs,
                                  std::string_view version) {
  const Fingerprint own = fingerprint_of(programs, version, everyone.member());
  std::vector<Fingerprint> all(everyone.size());
  const std::vector<int64_t> counts(all.size(), kWords);
  everyone.run({.kind = comm::Kind::all_gather,
                .dtype = DType::uint64,
                .in = &own,
                .out = all.data(),
                .counts = counts,
                .label = "handshake",
                .joins = true});
  for (size_t a = 0; a < kAspects.size(); ++a) {
    std::vector<int> others;
    for (size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank].aspects[a] != all[0].aspects[a]) others.push_back(static_cast<int>(rank));
    if (others.empty()) continue;
    fail("handshake", "{} of {} is not that of rank 0; {}", kAspects[a].name, comm::rank_text(others),
         kAspects[a].fix);
  }
  std::vector<uint64_t> copies;
  for (const Fingerprint& one : all) copies.push_back(one.copy);
  return copies;
}

}  // namespace tessera::launch
