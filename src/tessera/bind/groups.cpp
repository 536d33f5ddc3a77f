#include "tessera/bind/groups.h"

#include <algorithm>

#include "tessera/bind/frame.h"

namespace tessera::bind {

bool is_read_before(const NodeGroup& group, size_t operand, size_t result) {
  const size_t maker = result == 0 ? group.followers.size() : result - 1;
  return std::none_of(group.followers.begin() + static_cast<std::ptrdiff_t>(maker), group.followers.end(),
                      [&](const kernels::Follower& later) {
                        return std::count(later.operands.begin(), later.operands.end(), static_cast<int>(operand)) > 0;
                      });
}

// Decides which nodes one kernel runs, and which values are views or lie in blocks.
void Binding::assign_groups() {
  const Bound values{[this](const Value* value) { return desc(value); },
                     [this](const Value* value) { return known_ints(value); }};
  const kernels::Library& library = rank_->device().kernels();
  Grouping grouping = options_.keep_all ? single_nodes(*program_.graph, values, library)
                                        : group_nodes(*program_.graph, values, library);
  frame_->groups = std::move(grouping.groups);
  frame_->views = std::move(grouping.views);
  frame_->blocked = std::move(grouping.blocked);
  frame_->again = std::move(grouping.again);
  join_buckets();
}

// Null if the value has memory of its own.
const Alias* Binding::view_of(const Value* value) const {
  if (auto view = views_.find(value); view != views_.end()) return &view->second;
  auto view = frame_->views.find(value);
  return view == frame_->views.end() ? nullptr : &view->second;
}

// The value whose memory this one lies in.
const Value* Binding::home(const Value* value) const {
  const Alias* view = view_of(value);
  return view ? view->base : value;
}

}  // namespace tessera::bind
