#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "tessera/ir/tensor.h"
#include "tessera/runtime/loading_room.h"

namespace tessera::runtime {

/// A part of a state that never changes. Programs and ranks that want the same bytes name them alike.
struct WeightPart {
  std::string name;     ///< of the state
  std::string type;     ///< its dtype and the extents of the part
  uint64_t origin = 0;  ///< of the state's data (origin_of)
  std::string where;    ///< the part's place in the data; for a derived state, how init makes it

  auto operator<=>(const WeightPart&) const = default;
  std::string str() const;
};

/// A form in which kernels read the part: as it is, or packed.
struct WeightForm {
  WeightPart part;
  std::string form;

  auto operator<=>(const WeightForm&) const = default;
};

inline constexpr const char* kPlainForm = "";

/// The weights of all ranks of one process: ranks that want the same bytes in the same form share them. Ranks keep the
/// weights alive; this does not. Thread-safe.
class SharedWeights {
 public:
  /// The tensor of this form if some rank has it, else the result of `make`. Ranks that want the same form wait for the
  /// first of them, which makes it. If `make` throws, so does this call, and the next rank tries.
  Tensor get(const WeightForm& form, const std::function<Tensor()>& make);
  /// The tensor of this form; without an owner if no rank has it.
  Tensor find(const WeightForm& form) const;
  /// Offers others a tensor that the caller keeps.
  void put(const WeightForm& form, const Tensor& tensor);
  /// Whether some rank has the part in any form.
  bool holds_any(const WeightPart& part) const;

  /// Ranks whose inits make the same from the same data take turns, so that later ones find what the first has made.
  /// Waits for the caller's turn, which ends with the result.
  [[nodiscard]] LoadingRoom::Scope turn_of(const std::string& what);

  /// Where ranks wait while they load.
  LoadingRoom& room() { return room_; }

 private:
  struct Entry {
    Tensor tensor;  // without its owner
    std::weak_ptr<const void> owner;
  };
  template <typename T>
  LoadingRoom::Scope turn(std::set<T>& taken, const T& what);

  mutable std::mutex mutex_;  // of the entries
  std::map<WeightForm, Entry> entries_;
  LoadingRoom room_;
  std::set<WeightForm> being_made_;  // under the room's lock, as are turns_
  std::set<std::string> turns_;
};

}  // namespace tessera::runtime
