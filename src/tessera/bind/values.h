#pragma once

#include <memory>

#include "tessera/bind/groups.h"
#include "tessera/bind/sizes.h"

namespace tessera::bind {

/// How a program's values are laid out in memory at certain sizes: their types, and which of them are in the memory of
/// others.
class Values {
 public:
  Values(Sizes sizes, std::shared_ptr<const Grouping> grouping);
  /// The same grouping at other sizes. `moved`: the views that are elsewhere in their base, or have other strides.
  Values at(Sizes sizes, const std::map<const Value*, Alias>& moved) const;

  const Sizes& sizes() const { return sizes_; }
  /// With blocks and strides; undefined for null.
  kernels::TensorDesc type(const Value* value) const;
  bool is_blocked(const Value* value) const { return grouping_->blocked.contains(value); }

  /// The place in another value's memory; null: the value has memory of its own.
  const Alias* view_of(const Value* value) const { return views_.find(value); }
  const std::map<const Value*, Alias>& views() const { return grouping_->views; }
  /// The value whose memory this one is in.
  const Value* home(const Value* value) const;
  /// Bytes of a view's base before the view; 0 for one without elements, whose base may be as empty.
  size_t skip_of(const Alias& view, const Value* value) const;

  /// Lets sizes made by at() take over what is known so far.
  void share() { sizes_.share(); }

 private:
  Sizes sizes_;
  std::shared_ptr<const Grouping> grouping_;
  Layered<std::map<const Value*, Alias>> views_;
};

}  // namespace tessera::bind
