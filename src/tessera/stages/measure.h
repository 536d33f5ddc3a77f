#pragma once

#include <functional>

#include "tessera/ir/graph.h"

namespace tessera::stages {

/// Sizes and times at given sizes of symbols. A value without a shape counts as one byte.
class Measure {
 public:
  Measure(const Symbols& sizes, const std::function<double(const Node&)>& seconds) : sizes_(sizes), seconds_(seconds) {}

  double elements(const Value& value) const;
  double bytes(const Value& value) const;
  double seconds(const Node& node) const;
  /// Whether the value is known to have at most one element.
  bool is_scalar(const Value& value) const;

 private:
  double number(const Expr& expression) const;
  double roofline(const Node& node) const;

  const Symbols& sizes_;
  const std::function<double(const Node&)>& seconds_;
};

/// Whether the operator's record counts FLOPs, and it is not element-wise: products, norms, sums, pools. Also true of
/// an operator that has no record.
bool is_counted(const Node& node);

}  // namespace tessera::stages
