#pragma once

#include "tessera/bind/order.h"

namespace tessera::bind {

/// When the memory of each value is read.
class Uses {
 public:
  void add(const Value* home, const Span& span) { spans_[home].push_back(span); }
  /// In actions; a use after the run is at the action after the last.
  const std::vector<Span>& of(const Value* home) const;
  /// The last action of a use; -1: there is none.
  int last(const Value* home) const;

 private:
  std::map<const Value*, std::vector<Span>> spans_;
};

/// What is made before a loop and read in it is read by the loop's last iteration, too.
Uses uses_of(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values, const Regions& regions,
             const Order& order);

}  // namespace tessera::bind
