#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/comm/remote/staged.h"

namespace tessera::comm {

/// Which elements the members of a small group send each other, for a collective by messages between every two of them.
///
/// It has two parts, either of which may be absent. First, ranges of the inputs are reduced by their owners: every
/// other member sends its part of a range to the owner, which adds in member order what comes. Then members move
/// blocks. For example, an all_reduce of 8 elements over members 0 and 1:
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
  /// Members of a group beyond which a message from each to each costs more than libraries' algorithms, whose rounds
  /// grow with the logarithm of the group.
  static constexpr int kMostMembers = 8;

  /// A group as far as it decides who carries out its collectives.
  struct Group {
    int size = 1;
    int most_members = kMostMembers;
    bool shares_links = false;  ///< some members share a host, and with it a link, by which they reach others
  };
  /// Whether hosts, given by member, make members share links.
  static bool share_links(std::span<const int64_t> hosts);
  /// Whether it is the way to carry out such an operation. Of large tensors it is not where several members would send
  /// the same over one link.
  static bool suits(const Operation& operation, const Group& group);
  /// Whether an all_reduce or reduce has one part, if an owner should get at most so many bytes in that.
  static bool takes_one_part(const Operation& operation, int size, size_t most);
  /// Of an operation that the library does not add. The plan refers to it.
  DirectPlan(const Staged& staged, size_t most_in_one_part);

  bool reduces() const { return reduces_; }  ///< has a first part
  bool moves() const { return moves_; }      ///< has a second part
  size_t size() const { return static_cast<size_t>(staged_.size()); }
  size_t me() const { return static_cast<size_t>(staged_.member()); }
  size_t width() const { return width_; }  ///< bytes of an element
  size_t bytes_of(int64_t elements) const { return static_cast<size_t>(elements) * width_; }

  /// What member j reduces, of the inputs.
  Range owned_by(size_t j) const;
  /// What this member sends to member j in the second part: of what it has reduced, else of its input.
  Range sent_to(size_t j) const;
  /// What it gets from member j, in its output. From itself: where what it "sends" there belongs.
  Range received_from(size_t j) const;
  /// Copies what it sends to itself, from `source`, the memory of sent_to(); zeros where it gets nothing that it wants.
  void copy_own(const std::byte* source) const;

 private:
  const Staged& staged_;
  bool reduces_, moves_;
  size_t width_;
};

}  // namespace tessera::comm
