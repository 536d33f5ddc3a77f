#pragma once

#include <array>

#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/view.h"

namespace tessera::kernels {

/// The strides of operands along a result under numpy's broadcasting, in as few dimensions as possible.
///
/// Example: result [8, 4, 16], operands [8, 4, 16] and [4, 1]: the dimensions 8 and 4 cannot merge (the second operand
/// is repeated along 8), 16 is the row. dims {8, 4, 16}; strides {64, 16, 1} and {0, 1, 0}. With a second operand
/// [16], dims would be {32, 16} and its strides {0, 1}.
class Broadcast {
 public:
  static constexpr int max_rank = 16;

  static constexpr size_t max_operands = 24;

  /// Operands by their extents, row-major. A user error naming the node if one does not broadcast to the result.
  Broadcast(const Node& node, const Dims& result, const std::vector<Dims>& operands);
  /// The same for operands of any strides; in_rows() must hold for them.
  Broadcast(const Node& node, const Dims& result, const std::vector<View>& operands);

  int64_t count() const { return count_; }
  /// Elements of a row.
  int64_t row() const { return dims_.back(); }
  /// Whether each operand has consecutive elements, or one element, for a row.
  bool in_rows() const {
    return std::all_of(strides_.begin(), strides_.end(),
                       [](const Dims& strides) { return strides.back() == 0 || strides.back() == 1; });
  }
  /// True if the operand has one element for a whole row; else its elements are consecutive there.
  bool fixed(size_t operand) const { return strides_[operand].back() == 0; }

  /// Calls `row(offsets, begin, n)` for stretches of rows that cover the result: result elements [begin, begin + n),
  /// the operands' elements from offsets[operand] on. Stretches go to `threads` threads; `row` must not throw.
  template <typename Row>
  void for_each_row(int threads, Row&& row) const {
    for_ranges(count_, count_, threads, [&](int64_t begin, int64_t end) { walk(begin, end, row); });
  }
  /// The same for the result's elements [begin, end), in the caller's thread.
  template <typename Row>
  void walk(int64_t begin, int64_t end, Row&& row) const;

 private:
  int64_t count_ = 0;
  Dims dims_;                  ///< merged, at least one
  std::vector<Dims> strides_;  ///< [operand][dimension], in elements
};

template <typename Row>
void Broadcast::walk(int64_t begin, int64_t end, Row&& row) const {
  const int last = static_cast<int>(dims_.size()) - 1;
  const size_t operands = strides_.size();
  std::array<int64_t, max_operands> offsets{};
  check(operands <= max_operands, "a broadcast has at most max_operands operands");
  if (begin >= end) return;
  if (last == 0) {
    for (size_t k = 0; k < operands; ++k) offsets[k] = begin * strides_[k][0];
    row(static_cast<const int64_t*>(offsets.data()), begin, end - begin);
    return;
  }

  std::array<int64_t, max_rank> index{};
  int64_t rest = begin;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % dims_[d];
    rest /= dims_[d];
    for (size_t k = 0; k < operands; ++k) offsets[k] += index[d] * strides_[k][d];
  }
  while (begin < end) {
    const int64_t n = std::min(dims_[last] - index[last], end - begin);
    row(static_cast<const int64_t*>(offsets.data()), begin, n);
    begin += n;
    for (size_t k = 0; k < operands; ++k) offsets[k] -= index[last] * strides_[k][last];
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      for (size_t k = 0; k < operands; ++k) offsets[k] += strides_[k][d];
      if (++index[d] < dims_[d]) break;
      for (size_t k = 0; k < operands; ++k) offsets[k] -= dims_[d] * strides_[k][d];
      index[d] = 0;
    }
  }
}

}  // namespace tessera::kernels
