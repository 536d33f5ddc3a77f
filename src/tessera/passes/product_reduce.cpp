#include "tessera/passes/product_reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/passes/gather_product.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/passes/product_scatter.h"
#include "tessera/passes/ring_collective.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::passes {
namespace {

using spmd::Program;
using spmd::ReshardKind;
using spmd::ReshardStep;

// The dimension whose blocks differ least; nullopt if none can be cut.
std::optional<size_t> dimension_of_blocks(const Program& program, const Node& product, const Sharding& sharding,
                                          const std::vector<AxisRef>& axes) {
  const auto members = static_cast<double>(ranks_of(axes));
  std::optional<size_t> found;
  double least = std::numeric_limits<double>::infinity();
  for (size_t d = 0; d < sharding.dims.size(); ++d) {
    if (sharding.dims[d].parts.size() != 1 || !along_result(product, d)) continue;
    const double extent = spmd::hinted(product.outputs[0]->shape()[d], program.hints);
    if (extent < members) continue;
    const double imbalance = std::ceil(extent / members) * members / extent;
    if (imbalance >= least) continue;
    least = imbalance;
    found = d;
  }
  return found;
}

struct Halves {
  Node *scatter = nullptr, *gather = nullptr;
};

// The program with a reduce-scatter and an all-gather in the place of the all-reduce.
Halves split(Program& program, const ProductReduce& site) {
  Graph& graph = *program.graph;
  Value* summed = site.reduce->outputs[0];
  const spmd::Placement placed = program.placement(summed);
  const auto dim = static_cast<int>(site.dim);
  Sharding blocks = placed.sharding;
  std::vector<AxisRef>& split = blocks.dims[site.dim].parts[0].axes;
  split.insert(split.end(), site.axes.begin(), site.axes.end());
  ReshardStep scatters{ReshardKind::reduce_scatter, site.axes, Reduction::sum, dim, 0};
  scatters.before = program.placement(site.reduce->inputs[0]).sharding;
  scatters.after = blocks;
  ReshardStep gathers{ReshardKind::all_gather, site.axes, Reduction::sum, dim, 0};
  gathers.before = blocks;
  gathers.after = placed.sharding;
  Value* block = emit_reshard(program, site.reduce->inputs[0], scatters, placed.global, placed.name, site.reduce);
  Value* whole = emit_reshard(program, block, gathers, placed.global, placed.name, site.reduce);
  take_place(program, summed, whole);
  const std::string name = summed->name, axes = axes_text(site.axes, program.mesh);
  program.placements.erase(summed);
  graph.erase(site.reduce);
  graph.rename(whole, name);
  for (spmd::ReshardRecord& record : program.reshards) {
    const auto found = std::find(record.steps.begin(), record.steps.end(), "AllReduce " + axes);
    if (record.value != placed.name || found == record.steps.end()) continue;
    *found = "AllGather " + axes;
    record.steps.insert(found, "ReduceScatter " + axes);
    break;
  }
  return {block->producer, whole->producer};
}

}  // namespace

std::variant<ProductReduce, std::string> product_reduce(const Program& program, const flow::Flow& flow, Node* reduce) {
  if (flow.of(reduce) >= 0) return "it is in a loop or branch";
  const auto product = summed_product(program, *reduce);
  if (const auto* why = std::get_if<std::string>(&product)) return *why;
  const auto in = program.placements.find(reduce->inputs[0]), out = program.placements.find(reduce->outputs[0]);
  if (in == program.placements.end() || out == program.placements.end()) return "it is a step of an operator";
  const Sharding &before = in->second.sharding, &after = out->second.sharding;
  if (!before.at.empty() || !after.at.empty()) return "its value lives at a place";
  if (before.dims != after.dims) return "its dimensions are spelt otherwise before than after";
  const spmd::CollectiveAttributes collective = spmd::read_collective(*reduce, program.mesh);
  ProductReduce site{std::get<Node*>(product), reduce, 0, parse_axes(collective.axes, program.mesh), in->second.name};
  const auto dim = dimension_of_blocks(program, *site.product, after, site.axes);
  if (!dim) return "the product cannot be computed in as many pieces along one dimension";
  site.dim = *dim;
  site.readers = products_along(program, flow, reduce->outputs[0], site.dim, site.axes).products;
  return site;
}

void decompose(Program& program, const ProductReduce& site, const RingForm& form) {
  const Halves halves = split(program, site);
  const flow::Flow flow = flow::flow_of(*program.graph);
  const auto scatters = product_scatter(program, flow, halves.scatter);
  check(std::holds_alternative<ProductScatter>(scatters), "the first half of an all-reduce of a product is one");
  decompose(program, std::get<ProductScatter>(scatters), form);
  if (!form.both_halves) return;
  const auto gathers = gather_product(program, flow, halves.gather);
  if (const auto* found = std::get_if<GatherProduct>(&gathers)) decompose(program, *found, form);
}

}  // namespace tessera::passes
