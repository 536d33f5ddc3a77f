#pragma once

#include <set>

#include "tessera/kernels/groups.h"

namespace tessera::kernels {

/// Decides which values are views in the memory of others, and which groups only make views:
///
/// - reshapes, transposes, splits, slices and repetitions whose readers can all step as the view does, or read views of
///   it that they can, and soon enough for the rest of the memory not to be kept for long;
/// - what a kernel that can scatter its result makes for a Transpose alone: it is written transposed.
class Views {
 public:
  /// `kept` values are read after the run: they are views of whole values only. `blocked` are those in blocks.
  Views(std::vector<NodeGroup> groups, std::set<const Value*> kept, std::map<const Value*, int64_t> blocked);
  ~Views();

  /// The groups that are left, and the views.
  Grouping assign(const Bound& values);
  /// The same of whole, row-major values alone.
  Grouping assign_whole(const Bound& values);
  /// After one of these: see Regrouping::views.
  std::optional<std::map<const Value*, Placed>> assign_again(const std::vector<const Value*>& changed,
                                                             const Bound& values);

 private:
  class Assignment;
  std::unique_ptr<Assignment> assignment_;
};

}  // namespace tessera::kernels
