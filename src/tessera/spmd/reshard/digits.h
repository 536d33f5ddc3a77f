#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/mesh/sharding.h"

namespace tessera::spmd {

/// The common digits of mesh axes in several shardings: with tp:(1)2 in one and tp of size 4 in another, tp:(1)2 and
/// tp:(2)2.
class Digits {
 public:
  explicit Digits(const std::vector<const Sharding*>& shardings);

  /// The digits of an axis; the axis itself where its digits in the shardings do not fit together (2·3 and 3·2).
  std::vector<AxisRef> of(const AxisRef& axis) const;
  /// The digits of all axes of a part. A split over all digits in turn equals the split over the axis only if it is
  /// even; otherwise the axis stays as it is.
  std::vector<AxisRef> of(const Part& part) const;

 private:
  std::map<std::string, std::set<int64_t>> ends_;
};

}  // namespace tessera::spmd
