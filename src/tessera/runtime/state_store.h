#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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
  RankStates() = default;
  RankStates(const RankStates& other) : is_writing(other.is_writing.load()), slots_(other.slots_) {}
  RankStates& operator=(const RankStates&) = delete;

  /// The slot of that name. Null: there is none yet.
  StateSlot* find(std::string_view name);
  StateSlot& add(StateSlot slot);
  /// Bytes of all slots, spare ones included.
  size_t bytes() const;
  std::map<std::string, size_t> bytes_by_name() const;
  std::vector<std::string> names() const;
  /// Never frees the slots' memory, because communications that were under way when a run failed may still use it.
  void abandon_memory() const;

  /// Whether the rank has begun to write next values over current ones in a step that has not ended.
  std::atomic<bool> is_writing = false;  // a device's queue sets it

 private:
  std::map<std::string, StateSlot, std::less<>> slots_;
};

/// The current values of a model's states on the ranks of this process. Programs that share a store (a training step
/// and its evaluation) see each other's writes. A state of two programs must change in both, and be divided in the same
/// way.
class StateStore {
 public:
  /// `weights`: of stores of the same process, which share them.
  explicit StateStore(std::shared_ptr<SharedWeights> weights = std::make_shared<SharedWeights>())
      : weights_(std::move(weights)) {}

  /// Admits a program whose ranks of this process are `here`, with the states that change and those that do not, by
  /// their names in the model. Throws a user error if the store is another mesh's, other ranks' or on another device,
  /// or if a state changes in one program only, or is divided differently.
  void admit(const Mesh& mesh, const std::vector<int>& here, std::string_view device, const WholeStates& changing,
             const std::set<std::string>& fixed);

  /// The states of a rank of this process, which the first call makes.
  RankStates& of(int rank);

  /// The weights that never change, which ranks of this process share.
  const std::shared_ptr<SharedWeights>& weights() const { return weights_; }

  /// Locked while a program runs on these states: programs that share them take turns.
  std::mutex running;

  /// Throws a user error if a step has failed after ranks had begun to write, so that shards are of different steps.
  void require_whole() const;
  /// Call it after a step has failed. The step is undone, unless a rank was writing.
  void note_failure();
  /// Notes that ranks may have values of different steps for these states.
  void note_torn(const std::set<std::string>& states) { torn_.insert(states.begin(), states.end()); }
  /// Notes that these states have been written on all ranks.
  void note_written(const std::set<std::string>& states);

 private:
  std::map<int, RankStates> ranks_;
  std::shared_ptr<SharedWeights> weights_;
  std::optional<Mesh> mesh_;
  std::vector<int> here_;
  std::string device_;
  WholeStates changing_;
  std::set<std::string> fixed_, torn_;
};

}  // namespace tessera::runtime
