#pragma once

#include <memory>

#include "tessera/bind/groups.h"
#include "tessera/bind/sizes.h"

namespace tessera::bind {

/// The layout of a program's values in memory at certain sizes: their types, and which of them are views of others.
class Values {
 public:
  Values(Sizes sizes, std::shared_ptr<const Grouping> grouping);
  /// The same grouping at other sizes. `moved`: the views whose offsets or strides differ.
  Values at(Sizes sizes, const std::map<const Value*, Alias>& moved) const;

  const Sizes& sizes() const { return sizes_; }
  /// With blocks and strides; undefined for null.
  kernels::TensorDesc type(const Value* value) const;
  bool is_blocked(const Value* value) const { return grouping_->blocked.contains(value); }

  /// The value's place in another value's memory; null if it has memory of its own.
  const Alias* view_of(const Value* value) const { return views_.find(value); }
  const std::map<const Value*, Alias>& views() const { return grouping_->views; }
  /// The value whose memory this one is in.
  const Value* home(const Value* value) const;
  /// Bytes of a view's base before the view; 0 for a view without elements, whose base may be empty, too.
  size_t skip_of(const Alias& view, const Value* value) const;

  /// Lets values made by at() reuse the sizes known so far.
  void share() { sizes_.share(); }

 private:
  Sizes sizes_;
  std::shared_ptr<const Grouping> grouping_;
  Layered<std::map<const Value*, Alias>> views_;
};

}  // namespace tessera::bind
