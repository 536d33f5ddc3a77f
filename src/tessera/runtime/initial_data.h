#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tessera/runtime/rank_programs.h"

namespace tessera::runtime {

/// For extents of states, which depend on the rank alone.
inline std::optional<int64_t> no_symbols(std::string_view) {
  return std::nullopt;
}

/// One rank's parts of the data with which states begin.
class InitialData {
 public:
  InitialData(const Mesh& mesh, int rank) : mesh_(mesh), rank_(rank), coordinates_(mesh.coordinates(rank)) {}

  /// The extents of the rank's part of a state.
  Dims dims_of(const Value* state) const;
  /// The part where it is in the model's data. Nullopt: it must be copied, because it is in several pieces there, is
  /// not aligned for its type, or is made by a rule.
  std::optional<Tensor> view(const RankPrograms& programs, const Value* state) const;
  /// Writes the part.
  void copy(const RankPrograms& programs, const Value* state, void* to) const;
  /// Throws a user error if the data are missing.
  void require(const RankPrograms& programs, const Value* state) const;

 private:
  Mesh mesh_;
  int rank_;
  std::vector<int64_t> coordinates_;
};

}  // namespace tessera::runtime
