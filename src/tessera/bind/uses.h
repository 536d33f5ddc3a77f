#pragma once

#include "tessera/bind/order.h"

namespace tessera::bind {

/// When the memory of each value is read.
class Uses {
 public:
  void add(const Value* home, const Span& span) { spans_[home].push_back(span); }
  /// Spans of actions. A use after the run is at the action after the last one.
  const std::vector<Span>& of(const Value* home) const;
  /// The last action that reads it; -1: none.
  int last(const Value* home) const;

 private:
  std::map<const Value*, std::vector<Span>> spans_;
};

/// A value that is made before a loop and read in it is read up to the end of the loop.
Uses uses_of(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values, const Regions& regions,
             const Order& order);

}  // namespace tessera::bind
