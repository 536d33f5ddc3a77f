#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/spmd/program.h"

namespace tessera::runtime {

/// The programs of all ranks of a mesh: one SPMD program for all, or one program per class of ranks with equal programs
/// (a written program that was read back). All programs have the same ports in the same order (an output that lives
/// elsewhere has no value), and the same global types and shardings.
struct RankPrograms {
  using Shards = std::map<std::string, Tensor, std::less<>>;

  std::vector<std::shared_ptr<const spmd::Program>> programs;  ///< at least one
  std::vector<int> program_of;                                 ///< by rank; empty: all ranks run the first
  /// Distinct sets of shards, by the state's name, if states come already cut. Empty: ranks cut them from
  /// Program::initial.
  std::vector<Shards> shards;
  std::vector<int> shards_of;  ///< by rank; empty with `shards`

  /// The identities of the files with the programs' data (MappedFile::identity); empty if some data are not from files.
  std::vector<uint64_t> files;

  /// Whether values have placements. If not, only ports and states have them, as values that each rank has whole.
  bool placed = true;

  /// All ranks run `program` or, if it places values, their share of it (spmd/partition/specialize.h).
  static std::shared_ptr<const RankPrograms> same(std::shared_ptr<const spmd::Program> program,
                                                  std::vector<uint64_t> files = {});

  const Mesh& mesh() const { return programs.front()->mesh; }
  struct Output {
    const Value* value = nullptr;
    const spmd::Placement* placement = nullptr;
  };
  /// An output, as described by one of the programs that have it.
  Output output(size_t index) const;
  /// The states that change, by their names in the model, each as one of the programs that have it says.
  std::map<std::string, Output> changing_states() const;
  /// Those of one rank.
  std::map<std::string, Output> changing_states(int rank) const;
  const spmd::Program& of(int rank) const { return *programs[program_of.empty() ? 0 : program_of[rank]]; }
  /// The rank's shard of a state if shards come already cut; else null.
  const Tensor* shard_of(int rank, const std::string& state) const;
};

/// The same programs without an init: they compute in every step what is computed once (spmd/partition/init.h). Null:
/// no program has one.
std::shared_ptr<const RankPrograms> in_one_graph(const RankPrograms& programs);

}  // namespace tessera::runtime
