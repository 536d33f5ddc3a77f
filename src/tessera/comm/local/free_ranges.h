#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace tessera::comm {

/// Deals out ranges of [begin, end): the first that is free and large enough. Meant for few, large pieces.
class FreeRanges {
 public:
  FreeRanges(size_t begin, size_t end) { free_[begin] = end; }

  /// The start of a range of `bytes` bytes; nullopt if there is none.
  std::optional<size_t> take(size_t bytes) {
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      const auto [begin, end] = *range;
      if (end - begin < bytes) continue;
      free_.erase(range);
      if (begin + bytes < end) free_[begin + bytes] = end;
      return begin;
    }
    return std::nullopt;
  }

  void give_back(size_t begin, size_t bytes) {
    if (bytes == 0) return;
    size_t end = begin + bytes;
    auto next = free_.lower_bound(begin);
    if (next != free_.end() && next->first == end) {
      end = next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->second == begin)
      std::prev(next)->second = end;
    else
      free_[begin] = end;
  }

  /// Ranges that are free; neighbours count as one.
  size_t count() const { return free_.size(); }

 private:
  std::map<size_t, size_t> free_;  // begin to end
};

}  // namespace tessera::comm
