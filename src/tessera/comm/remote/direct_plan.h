#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/comm/remote/staged.h"

namespace tessera::comm {

/// Which elements the members of a small group send each other, for a collective by messages between every two of them.
///
/// It has two parts, either of which may be absent. First, owners reduce ranges of the inputs: every other member sends
/// its part of a range to the owner, which adds the parts in member order. Then members move blocks. For example, an
/// all_reduce of 8 elements over members 0 and 1:
///
///   reduce   0 owns [0, 4) and gets 1's; 1 owns [4, 8) and gets 0's
///   move     0 sends its [0, 4) to 1, 1 its [4, 8) to 0
///
/// A small one takes a single part, in which both own [0, 8). A reduce_scatter has the first part only, an all_gather
/// the second.
class DirectPlan {
 public:
  /// Elements of a buffer.
  struct Range {
    int64_t offset = 0, count = 0;
  };
  /// The largest group for which messages between every two members are worthwhile. Beyond it, libraries' algorithms
  /// cost less, since their rounds grow with the logarithm of the group.
  static constexpr int kMostMembers = 8;

  /// The properties of a group that decide who carries out its collectives.
  struct Group {
    int size = 1;
    int most_members = kMostMembers;
    bool shares_links = false;  ///< some members share a host, and so its link to others
  };
  /// Whether members share links, given the host of each member.
  static bool share_links(std::span<const int64_t> hosts);
  /// Whether a direct plan suits the operation. It does not suit large tensors if several members would send the same
  /// data over one link.
  static bool suits(const Operation& operation, const Group& group);
  /// Whether an all_reduce or reduce takes one part, if an owner should then receive at most `most` bytes.
  static bool takes_one_part(const Operation& operation, int size, size_t most);
  /// The plan of an operation whose sums are not the library's. The plan refers to `staged`.
  DirectPlan(const Staged& staged, size_t most_in_one_part);

  bool reduces() const { return reduces_; }  ///< has a first part
  bool moves() const { return moves_; }      ///< has a second part
  size_t size() const { return static_cast<size_t>(staged_.size()); }
  size_t me() const { return static_cast<size_t>(staged_.member()); }
  size_t width() const { return width_; }  ///< bytes of an element
  size_t bytes_of(int64_t elements) const { return static_cast<size_t>(elements) * width_; }

  /// The range of the inputs that member j reduces.
  Range owned_by(size_t j) const;
  /// The range that this member sends to member j in the second part: of its reduced range, else of its input.
  Range sent_to(size_t j) const;
  /// The range of its output that it receives from member j. For itself: the place of the range that it "sends".
  Range received_from(size_t j) const;
  /// Copies the range that it sends to itself from `source`, the memory of sent_to(); writes zeros where nobody sends.
  void copy_own(const std::byte* source) const;

 private:
  const Staged& staged_;
  bool reduces_, moves_;
  size_t width_;
};

}  // namespace tessera::comm
