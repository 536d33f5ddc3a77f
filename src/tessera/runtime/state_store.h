#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/bind/state_slot.h"
#include "tessera/mesh/mesh.h"
#include "tessera/runtime/shared_weights.h"
#include "tessera/runtime/whole_states.h"

namespace tessera::runtime {

using bind::StateSlot;

/// The states of one rank. Used from one thread at a time.
class RankStates {
 public:
  /// The slot of that name. Null: there is none yet.
  StateSlot* find(std::string_view name);
  StateSlot& add(StateSlot slot);
  /// Bytes of all slots, spare ones included.
  size_t bytes() const;
  std::map<std::string, size_t> bytes_by_name() const;
  std::vector<std::string> names() const;
  /// Leaves the slots' memory in place for good, for communications that were under way as a run failed.
  void abandon_memory() const;

  /// Whether the rank has begun to write next values over current ones in a step that has not ended.
  bool is_writing = false;

 private:
  std::map<std::string, StateSlot, std::less<>> slots_;
};

/// The values of a model's states on the ranks of this process, from the data that the model starts with to what steps
/// and callers make of them. Programs that share a store (a training step and its evaluation) see each other's writes.
/// A state of two programs must change in both and be cut alike.
class StateStore {
 public:
  /// Admits a program whose ranks of this process are `here`, with the states that change and those that do not, by
  /// their names in the model. Throws a user error if the store is another mesh's, other ranks' or on another device,
  /// or if a state changes in one program only, or is in other pieces there.
  void admit(const Mesh& mesh, const std::vector<int>& here, std::string_view device, const WholeStates& changing,
             const std::set<std::string>& fixed);

  /// The states of a rank of this process, which the first call makes.
  RankStates& of(int rank);

  /// The weights that never change, which ranks of this process share.
  const std::shared_ptr<SharedWeights>& weights() const { return weights_; }

  /// Held by whoever runs a program on these states: programs that share them take turns.
  std::mutex running;

  /// Throws a user error if a step has failed after ranks had begun to write: their shards are of different steps.
  void require_whole() const;
  /// To be called after a step has failed. It is as if the step had not begun, unless a rank was writing.
  void note_failure();
  /// Some ranks may have other values of these states than others have.
  void note_torn(const std::set<std::string>& states) { torn_.insert(states.begin(), states.end()); }
  /// These states have been written anew on all ranks.
  void note_written(const std::set<std::string>& states);

 private:
  std::map<int, RankStates> ranks_;
  std::shared_ptr<SharedWeights> weights_ = std::make_shared<SharedWeights>();
  std::optional<Mesh> mesh_;
  std::vector<int> here_;
  std::string device_;
  WholeStates changing_;
  std::set<std::string> fixed_, torn_;
};

}  // namespace tessera::runtime
