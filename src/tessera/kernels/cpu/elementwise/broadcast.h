#pragma once

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

  using Row = FunctionRef<void(const int64_t* offsets, int64_t begin, int64_t n)>;
  /// Calls `row(offsets, begin, n)` for stretches of rows that cover the result: result elements [begin, begin + n),
  /// the operands' elements from offsets[operand] on. Stretches go to `threads` threads; `row` must not throw.
  void for_each_row(int threads, Row row) const;
  /// The same for the result's elements [begin, end), in the caller's thread.
  void walk(int64_t begin, int64_t end, Row row) const;

 private:
  int64_t count_ = 0;
  Dims dims_;                  ///< merged, at least one
  std::vector<Dims> strides_;  ///< [operand][dimension], in elements
};

}  // namespace tessera::kernels
