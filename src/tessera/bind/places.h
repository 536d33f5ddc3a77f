#pragma once

#include <map>
#include <memory>

#include "tessera/bind/layered.h"
#include "tessera/bind/machine.h"
#include "tessera/bind/rank.h"
#include "tessera/bind/values.h"

namespace tessera::bind {

/// Places for results, by the value that owns the memory.
using Destinations = std::map<const Value*, Location>;

/// Where each value is. Views, and states that never change, get their places when these are first requested, because
/// most weights are only read in a packed form and need no plain shard.
class Places {
 public:
  explicit Places(std::shared_ptr<Rank> rank) : rank_(std::move(rank)) {}
  /// A copy of the shared places, for a binding that moves some of them.
  Places fresh() const;

  /// Null if it has no place yet.
  const Location* find(const Value* value) const { return by_value_.find(value); }
  const Location& put(const Value* value, const Location& place) { return by_value_.set(value, place); }
  const Location& locate(const Values& values, const Value* value);

  /// Whether a value's place differs from that in the shared layer.
  bool is_moved(const Value* value) const { return by_value_.own().contains(value); }
  bool any_moved() const { return !by_value_.own().empty(); }
  void share() { by_value_.share(); }

 private:
  std::shared_ptr<Rank> rank_;
  Layered<std::map<const Value*, Location>> by_value_;
};

/// The elements of constants and expressions, in memory of the device and of the host.
class KnownElements {
 public:
  explicit KnownElements(std::shared_ptr<Rank> rank) : rank_(std::move(rank)) {}
  KnownElements fresh() const;

  /// Puts a constant's elements where kernels can read them.
  Location place_constant(const Value* constant);
  /// The same for an expression's elements.
  Location place_expression(const Value* expression, const std::vector<int64_t>& elements);

  /// Whether the value is the same in every run, so its elements may be known.
  static bool may_know(const Value* value);
  /// The host's elements of such a value, which the device has at `place`; null if they are too many to copy.
  const void* of(const Value* value, const Location& place, const Sizes& sizes) const;

  void share();
  /// Never frees the tensors, because work under way when a run failed may still use them.
  void abandon() const;

 private:
  std::shared_ptr<Rank> rank_;
  std::vector<Tensor> tensors_;                          // of expressions
  std::shared_ptr<const std::vector<Tensor>> shared_;    // those of the first binding
  Layered<std::map<const void*, const void*>> on_host_;  // by the device's address
};

}  // namespace tessera::bind
