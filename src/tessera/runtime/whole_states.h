#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/runtime/rank_programs.h"

/// States as the model names them, where programs hold their elements in pieces (StateOrigin).
namespace tessera::runtime {

/// A parameter of the model that changes from run to run, and the states of the programs that hold its elements.
struct WholeState {
  struct Piece {
    std::string state;
    Dims begin, extents;  ///< the elements of the parameter that the state holds

    bool operator==(const Piece&) const = default;
  };
  DType dtype = DType::undefined;
  Dims dims;
  std::vector<Piece> pieces;  ///< in the order of their first elements; one if the parameter is a state itself

  bool operator==(const WholeState&) const = default;

  bool is_divided(const std::string& name) const { return pieces.size() != 1 || pieces.front().state != name; }
  /// "float32 [8, 6] in pieces [8, 4] at [0, 0], [8, 2] at [0, 4]"; without pieces if it is not divided.
  std::string str(const std::string& name) const;
};

/// All that change, by name.
using WholeStates = std::map<std::string, WholeState>;
WholeStates whole_states(const RankPrograms& programs);

/// Bytes of the shards that a rank saves in a checkpoint. The lowest of several ranks with the same shard saves it.
size_t saved_bytes(const RankPrograms& programs, int rank);

/// Throws a user error if the pieces of a state do not hold each of its elements once.
void require_whole(const WholeStates& states);

/// Copies pieces into the whole tensor, and back. `pieces` by the states' names.
void join_pieces(const WholeState& state, const std::map<std::string, Tensor>& pieces, Tensor& whole);
void cut_pieces(const WholeState& state, const Tensor& whole, std::map<std::string, Tensor>& pieces);

}  // namespace tessera::runtime
