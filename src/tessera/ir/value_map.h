#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// A map from the values of one graph, by their numbers: as fast as an array. Its size follows the largest number, so
/// it is for passes that note something of most values. References to what it holds stay valid.
template <typename T>
class ValueMap {
 public:
  /// Null if nothing is known of the value, or if there is no value.
  const T* find(const Value* value) const {
    return value && value->number < held_.size() && held_[value->number] ? &*held_[value->number] : nullptr;
  }
  T* find(const Value* value) { return const_cast<T*>(std::as_const(*this).find(value)); }
  bool contains(const Value* value) const { return find(value) != nullptr; }

  /// Made if nothing was known of the value.
  T& operator[](const Value* value) {
    if (value->number >= held_.size()) held_.resize(value->number + 1);
    std::optional<T>& held = held_[value->number];
    if (!held) held.emplace();
    return *held;
  }

 private:
  std::deque<std::optional<T>> held_;
};

/// A set of values of one graph.
class ValueSet {
 public:
  bool contains(const Value* value) const { return value && value->number < held_.size() && held_[value->number]; }
  void insert(const Value* value) {
    if (!value) return;
    if (value->number >= held_.size()) held_.resize(value->number + 1);
    held_[value->number] = true;
  }

 private:
  std::vector<bool> held_;
};

}  // namespace tessera
