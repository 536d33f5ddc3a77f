#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/tensor.h"

namespace tessera::runtime {

/// One rank's shard of a state that changes from step to step.
struct StateSlot {
  std::string name;    ///< the state's id
  std::string layout;  ///< a description of how the whole state is cut among ranks
  DType dtype = DType::undefined;
  Dims dims;
  size_t bytes = 0;
  std::shared_ptr<std::byte[]> current;  ///< dense; null where nothing will run
  /// A step computes the next value here while the current one is still read; then the two change places. Null until a
  /// plan needs it.
  std::shared_ptr<std::byte[]> spare;
  bool has_spare = false;                         ///< whether `spare` counts, also where nothing will run
  std::vector<std::shared_ptr<const void>> held;  ///< its memory in the process' limit
};

/// The states of one rank. Used from one thread at a time.
class RankStates {
 public:
  /// The slot of that name. Null: there is none yet.
  StateSlot* find(std::string_view name);
  StateSlot& add(StateSlot slot);
  /// Bytes of all slots, spare ones included.
  size_t bytes() const;

  /// Whether the rank has begun to write next values over current ones in a step that has not ended.
  bool is_writing = false;

 private:
  std::map<std::string, StateSlot, std::less<>> slots_;
};

/// The values of a model's states on the ranks of this process, from the model's initial data to the values that steps
/// and callers write. Programs that share a store (a training step and its evaluation) see each other's writes; a state
/// of two programs must be cut alike in both.
class StateStore {
 public:
  /// The states of a rank of this process; the first call makes them.
  RankStates& of(int rank);

  /// Held by whoever runs a program on these states: programs that share them take turns.
  std::mutex running;

  /// Throws a user error if a step has failed after ranks had begun to write: their shards are of different steps.
  void require_whole() const;
  /// Call this after a step has failed. The states are as if the step had not begun, unless a rank was writing.
  void note_failure();
  /// All states have been written anew.
  void note_written();

 private:
  std::map<int, RankStates> ranks_;
  bool torn_ = false;
};

}  // namespace tessera::runtime
