#include "tessera/mesh/queues.h"

#include "tessera/mesh/nearest_axis.h"

namespace tessera {

bool has_queues(std::string_view device) {
  return device != "cpu";
}

std::string queue_of(const std::vector<AxisRef>& axes, const Mesh& mesh) {
  const std::string nearest = nearest_axis(axes, mesh);
  return nearest.empty() ? "one rank" : nearest;
}

}  // namespace tessera
