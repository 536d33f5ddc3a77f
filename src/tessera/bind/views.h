#pragma once

#include <set>

#include "tessera/bind/groups.h"

namespace tessera::bind {

/// Decides which values are views of others, and which groups only make views:
///
/// - The result of a reshape, transpose, split, slice or repetition is a view if all its readers can read its strides,
///   or read views of it whose strides they can read, and read it soon, so that the rest of the memory is not kept
///   long.
/// - If a concatenation consists of results of kernels that are contiguous in it, the kernels write them there.
/// - If a kernel can write its result with strides, and only a permutation reads it, the kernel writes it permuted.
class Views {
 public:
  /// `kept` values are read after the run, so they are views only of whole values. `blocked` values are in blocks.
  Views(std::vector<NodeGroup> groups, std::set<const Value*> kept, std::map<const Value*, int64_t> blocked,
        const kernels::Library& library);
  ~Views();

  /// The groups that do more than make views, and the views.
  Grouping assign(const Bound& values);
  /// The same, with views only of whole, row-major values.
  Grouping assign_whole(const Bound& values);
  /// After assign() or assign_whole(): see Regrouping::views.
  std::optional<std::map<const Value*, Alias>> assign_again(const std::vector<const Value*>& changed,
                                                            const Bound& values);

 private:
  class Assignment;
  std::unique_ptr<Assignment> assignment_;
};

}  // namespace tessera::bind
