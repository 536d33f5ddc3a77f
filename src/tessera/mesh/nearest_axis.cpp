#include "tessera/mesh/nearest_axis.h"

#include <algorithm>
#include <tuple>

#include "tessera/base/error.h"

namespace tessera {

std::string nearest_axis(const std::vector<AxisRef>& axes, const Mesh& mesh) {
  std::tuple<int, int64_t> nearest{-1, 0};  // the axis' place on the mesh, and the product of its digits up to there
  for (const AxisRef& axis : axes) {
    if (axis.size == 1) continue;
    const auto index = mesh.find(axis.axis);
    check(index.has_value(), "a group's axis is on the mesh");
    nearest = std::max(nearest, std::tuple<int, int64_t>{*index, axis.pre * axis.size});
  }
  const auto [index, digits] = nearest;
  return index < 0 ? "" : AxisRef{mesh.axes()[static_cast<size_t>(index)].name, 1, digits}.str(mesh);
}

}  // namespace tessera
