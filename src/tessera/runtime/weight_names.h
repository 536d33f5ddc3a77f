#pragma once

#include <map>
#include <set>
#include <vector>

#include "tessera/bind/rank.h"
#include "tessera/runtime/rank_programs.h"
#include "tessera/runtime/shared_weights.h"

namespace tessera::runtime {

/// How one rank names its parts of states that never change: alike for programs and ranks that want the same bytes.
class WeightNames {
 public:
  WeightNames(const Mesh& mesh, int rank) : mesh_(mesh), rank_(rank), coordinates_(mesh.coordinates(rank)) {}

  const WeightPart& part_of(const RankPrograms& programs, const Value* state);
  /// The name of a packed form, with what is packed into it beside the weight.
  WeightForm form_of(const RankPrograms& programs, const bind::WeightToPack& wanted);
  /// These bytes by the names that the same parts have on this rank, which runs the same program as the rank of
  /// `other`.
  std::map<WeightForm, size_t> renamed(const std::map<WeightForm, size_t>& other, const RankPrograms& programs);

  /// Forgets the states of these programs. Returns the parts of all others.
  std::set<WeightPart> forget(const RankPrograms& programs);
  /// Call it when values of programs may go, and others may take their addresses.
  void forget_all() { parts_.clear(); }

 private:
  void name_derived(const RankPrograms& programs);

  Mesh mesh_;
  int rank_;
  std::vector<int64_t> coordinates_;
  std::map<const Value*, WeightPart> parts_;
};

}  // namespace tessera::runtime
