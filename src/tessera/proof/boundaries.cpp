#include "tessera/proof/boundaries.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/mesh/group.h"

namespace tessera::proof {
namespace {

// For each region, the axes of the mesh along which it communicates.
std::map<int, std::set<std::string>> axes_by_region(const spmd::Program& program, const flow::Flow& flow,
                                                    const std::vector<Communication>& communications) {
  std::map<int, std::set<std::string>> axes;
  for (const Communication& communication : communications)
    for (int region = flow.of(communication.node); region >= 0; region = flow.regions[region].parent)
      for (const AxisRef& axis : parse_axes(communication.axes, program.mesh)) axes[region].insert(axis.axis);
  return axes;
}

std::vector<std::string> in_mesh_order(const std::set<std::string>& axes, const Mesh& mesh) {
  std::vector<std::string> ordered;
  for (const MeshAxis& axis : mesh.axes())
    if (axes.contains(axis.name)) ordered.push_back(axis.name);
  return ordered;
}

}  // namespace

std::vector<Meeting> meetings_of(const spmd::Program& program, const flow::Flow& flow,
                                 const std::vector<Communication>& communications) {
  std::vector<Meeting> meetings;
  for (const auto& [region, axes] : axes_by_region(program, flow, communications))
    meetings.push_back({&flow.regions[region], in_mesh_order(axes, program.mesh)});
  return meetings;
}

std::vector<Communication> with_boundaries(const spmd::Program& program,
                                           const std::vector<Communication>& communications) {
  const flow::Flow flow = flow::flow_of(*program.graph);
  const auto axes = axes_by_region(program, flow, communications);
  if (axes.empty()) return communications;
  std::vector<Communication> all;
  const auto boundary = [&](int region, std::string_view what) {
    if (!axes.contains(region)) return;
    Communication barrier;
    barrier.node = flow.regions[region].begin;
    barrier.axes = in_mesh_order(axes.at(region), program.mesh);
    barrier.value = what;
    barrier.has_operand = true;
    barrier.as_written = program.as_written;
    all.push_back(std::move(barrier));
  };
  int inside = -1;
  const auto leave = [&](int next) {
    for (; !flow.is_within(next, inside); inside = flow.regions[inside].parent)
      boundary(inside, flow.regions[inside].is_loop() ? "the end of an iteration" : "the end of a branch");
  };
  auto communication = communications.begin();
  for (const auto& node : program.graph->nodes()) {
    const int region = flow.of(node.get());
    leave(region);
    if (region != inside) {
      inside = region;
      boundary(region, flow.regions[region].is_loop() ? "the beginning of an iteration" : "the beginning of a branch");
    }
    if (communication != communications.end() && communication->node == node.get()) all.push_back(*communication++);
  }
  leave(-1);
  return all;
}

}  // namespace tessera::proof
