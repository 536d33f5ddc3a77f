#pragma once

#include <map>
#include <memory>

#include "tessera/bind/layered.h"
#include "tessera/bind/machine.h"
#include "tessera/bind/rank.h"
#include "tessera/bind/values.h"

namespace tessera::bind {

/// Places of some values, by the value that has the memory.
using Destinations = std::map<const Value*, Location>;

/// Where each value is. Views and states that never change get their places when they are first asked for: most
/// weights are wanted packed, and need no shard of their own.
class Places {
 public:
  explicit Places(std::shared_ptr<Rank> rank) : rank_(std::move(rank)) {}
  /// The places that share() has kept, for a binding that moves some of them.
  Places fresh() const;

  /// Null: it has no place yet.
  const Location* find(const Value* value) const { return by_value_.find(value); }
  const Location& put(const Value* value, const Location& place) { return by_value_.set(value, place); }
  const Location& locate(const Values& values, const Value* value);

  /// Whether a value has another place than the shared ones say.
  bool is_moved(const Value* value) const { return by_value_.own().contains(value); }
  bool any_moved() const { return !by_value_.own().empty(); }
  void share() { by_value_.share(); }

 private:
  std::shared_ptr<Rank> rank_;
  Layered<std::map<const Value*, Location>> by_value_;
};

/// The elements of constants and expressions: where the device has them, and where the host does.
class KnownElements {
 public:
  explicit KnownElements(std::shared_ptr<Rank> rank) : rank_(std::move(rank)) {}
  KnownElements fresh() const;

  /// Puts a constant's elements where kernels read them.
  Location place_constant(const Value* constant);
  /// The same for an expression's elements.
  Location place_expression(const Value* expression, const std::vector<int64_t>& elements);

  /// Whether no run changes the value, so that its elements may be known.
  static bool may_know(const Value* value);
  /// The elements of such a value at `place`, for the host; null: they are too many to be copied to the host.
  const void* of(const Value* value, const Location& place, const Sizes& sizes) const;

  void share();
  /// Leaves the tensors in memory for good, for work that is under way as a run fails.
  void abandon() const;

 private:
  std::shared_ptr<Rank> rank_;
  std::vector<Tensor> tensors_;                          // of expressions
  std::shared_ptr<const std::vector<Tensor>> shared_;    // those of the first binding
  Layered<std::map<const void*, const void*>> on_host_;  // by the device's address
};

}  // namespace tessera::bind
