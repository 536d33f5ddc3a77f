#pragma once

#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// Requirements on operands. All errors are user errors of the stage "shape" that name the node.
namespace tessera::ops {

/// Shape of operand `index`, which must have this rank; `what` names the operand in the error.
const Shape& require_rank(const Node& node, size_t index, std::string_view what, size_t rank);

/// Chooses one of two extents that must be equal; an error if both are known and differ.
Expr require_equal(const Node& node, const Expr& a, const Expr& b, std::string_view what_a, std::string_view what_b);

/// The common element type of these operands; absent ones do not count.
DType require_same_dtype(const Node& node, const std::vector<size_t>& indices);

/// Operand `index` must broadcast to `shape` without widening it.
void require_broadcast_to(const Node& node, size_t index, std::string_view what, const Shape& shape);

/// While it lives, collects the extents that operators in this thread require to be equal (require_equal,
/// require_broadcast_to) but that are not known to be.
class EqualityNotes {
 public:
  struct Equality {
    Expr a, b;
    bool broadcasts = false;  ///< `a` may be 1 instead
  };

  EqualityNotes();
  ~EqualityNotes();
  EqualityNotes(const EqualityNotes&) = delete;
  EqualityNotes& operator=(const EqualityNotes&) = delete;

  const std::vector<Equality>& all() const { return all_; }
  static void note(const Expr& a, const Expr& b, bool broadcasts);

 private:
  std::vector<Equality> all_;
  EqualityNotes* before_;
};

}  // namespace tessera::ops
