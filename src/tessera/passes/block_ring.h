#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/ops/rule.h"
#include "tessera/spmd/program.h"

namespace tessera::passes {

/// How the blocks of a ring travel.
struct RingForm {
  bool both_ways = false;    ///< blocks of members before and behind arrive at once, each along its shorter way
  int64_t pieces = 1;        ///< of each block, sent one by one
  bool both_halves = false;  ///< of an all-reduce: not only the scattered sums, the gathered ones, too
  /// Above 0: the ring goes around so many units of near members (near_members.h), with whole blocks.
  int64_t units = 0;
  bool operator==(const RingForm&) const = default;
};

/// "both ways, 2 pieces"
std::string str(const RingForm& form);

/// The axes that split a part further, from `coarse` to `fine`, as these spell them: sub-axes of one axis, one after
/// the other, may split an uneven dimension otherwise than the axis does. Nullopt if they are others than `group`.
std::optional<std::vector<AxisRef>> axes_between(const Part& coarse, const Part& fine,
                                                 const std::vector<AxisRef>& group);

/// The blocks of a dimension that is split over a group, as they go around the ring of the group's members. A block is
/// named by its offset, the distance from this member to the block's owner: offset 0 is this member's own block, -1
/// that of the member before, and the last member is before the first. Blocks are cut into pieces, as even as can be.
///
/// Example: 5 members, both ways. A member meets the offsets -2 … 2; to its next member it passes on those that come
/// from before (0 and -1, which there are -1 and -2), and to the member before it 0 and 1. One way, it meets -4 … 0.
class BlockRing {
 public:
  enum class Way { forth, back };  ///< to the next member, to the member before

  /// `size`: of the dimension, for all members together. `axes`: of the group, major first.
  BlockRing(spmd::Program& program, std::vector<AxisRef> axes, Expr size, RingForm form);

  const std::vector<AxisRef>& axes() const { return axes_; }
  int64_t members() const { return static_cast<int64_t>(shards_.size()); }
  int64_t pieces() const { return form_.pieces; }
  /// The number of offsets below 0, and above 0.
  int64_t before() const { return before_; }
  int64_t behind() const { return members() - 1 - before_; }

  /// The elements of a piece, on this member; expressions over axis indices.
  ops::Interval piece(int64_t offset, int64_t piece) const;
  /// 1 on members where the owner's number is this member's plus the offset, 0 where the ring's end is between them.
  Expr is_straight(int64_t offset) const;

  struct Message {
    std::string value;  ///< name of the global value that it is part of
    std::string step;
    Way way = Way::forth;
  };
  /// Each member sends a tensor one member further. Nodes are added before `node`.
  void send(const Message& message, Value* value, const Node* node) const;
  /// And receives one of this type.
  Value* receive(const Message& message, TensorType type, const Node* node) const;

 private:
  std::vector<int64_t> neighbours(int64_t distance) const;

  spmd::Program& program_;
  const std::vector<AxisRef> axes_;
  const Expr size_;
  const RingForm form_;
  const std::vector<ops::Interval> shards_;  // by member
  const Expr me_;
  int64_t before_ = 0;
};

/// The pieces of a dimension's blocks as a whole: joins them in the order of the dimension. `pieces[o][p]` is piece p
/// of the block at offset o - ring.before(). A block's place in the whole depends on the member, but not its place
/// among the others, but for those beyond the ring's end: so these are operands of a Concat twice, once empty. On
/// member 1 of 3, one way (a, b and c are the blocks at offsets -2, -1 and 0):
///
///     Concat (empty, b, c, a, empty) = blocks 0, 1, 2
Value* joined(spmd::Program& program, const BlockRing& ring, const std::vector<std::vector<Value*>>& pieces, size_t dim,
              const TensorType& type, const std::string& name, const Node* before);

}  // namespace tessera::passes
