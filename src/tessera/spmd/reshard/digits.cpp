#include "tessera/spmd/reshard/digits.h"

namespace tessera::spmd {

Digits::Digits(const std::vector<const Sharding*>& shardings) {
  for (const Sharding* sharding : shardings)
    for (const AxisRef& axis : sharding->axes()) {
      ends_[axis.axis].insert(axis.pre);
      ends_[axis.axis].insert(axis.pre * axis.size);
    }
}

std::vector<AxisRef> Digits::of(const AxisRef& axis) const {
  std::vector<AxisRef> digits;
  int64_t begin = axis.pre;
  const std::set<int64_t>& ends = ends_.at(axis.axis);
  for (auto end = ends.upper_bound(begin); end != ends.end() && *end <= axis.pre * axis.size; ++end) {
    if (*end % begin != 0) return {axis};
    digits.push_back({axis.axis, begin, *end / begin});
    begin = *end;
  }
  return digits;
}

std::vector<AxisRef> Digits::of(const Part& part) const {
  std::vector<AxisRef> axes;
  int64_t pieces = 1;
  for (const AxisRef& axis : part.axes) {
    pieces *= axis.size;
    if (Expr::exact_divide(part.size, pieces)) {
      const auto digits = of(axis);
      axes.insert(axes.end(), digits.begin(), digits.end());
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

}  // namespace tessera::spmd
