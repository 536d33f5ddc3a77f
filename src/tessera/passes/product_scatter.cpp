#include "tessera/passes/product_scatter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tessera/mesh/group.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

using spmd::Program;
using Way = BlockRing::Way;

class ScatterRewrite {
 public:
  ScatterRewrite(Program& program, const ProductScatter& site, const RingForm& form)
      : program_(program),
        graph_(*program.graph),
        site_(site),
        along_(*along_result(*site.product, site.dim)),
        ring_(program, site.axes, site.product->outputs[0]->shape()[site.dim], form) {}

  void run() {
    std::vector<Value*> results;  // by piece
    const int64_t most = std::max(ring_.before(), ring_.behind());
    for (int64_t distance = most; distance >= 0; --distance)
      for (int64_t p = 0; p < ring_.pieces(); ++p) {
        if (distance == 0) {
          results.push_back(finished(p));
          continue;
        }
        if (distance <= ring_.before()) pass_on(distance, p, Way::forth);
        if (distance <= ring_.behind()) pass_on(distance, p, Way::back);
      }
    Value* old = site_.scatter->outputs[0];
    Value* made = results.front();
    if (results.size() > 1) {
      Node* concat = graph_.add_node("Concat", results, {old->name}, "", site_.scatter);
      concat->set("axis", static_cast<int64_t>(site_.dim));
      made = concat->outputs[0];
      made->type = old->type;
    }
    take_place(program_, old, made);
    const std::string name = old->name;
    for (Node* node : {site_.scatter, site_.product}) {
      program_.placements.erase(node->outputs[0]);
      graph_.erase(node);
    }
    graph_.rename(made, name);
    record_ring(program_, site_.value, "ReduceScatter", axes_text(site_.axes, program_.mesh));
  }

 private:
  Value* term(int64_t offset, int64_t p) {
    return on_piece(program_, *site_.product, along_, ring_.piece(offset, p), {}, site_.scatter);
  }

  // The sum of a block that comes from this way; `distance` members further is its owner.
  Value* arrived(int64_t distance, int64_t p, Way way) {
    TensorType type = site_.product->outputs[0]->type;
    (*type.shape)[site_.dim] = ring_.piece(way == Way::forth ? distance : -distance, p).count();
    return ring_.receive(message(distance + 1, p, way), std::move(type), site_.scatter);
  }

  BlockRing::Message message(int64_t distance, int64_t p, Way way) const {
    return {site_.value,
            fmt::format("ring{}_{}{}", way == Way::forth ? "" : "_back", distance,
                        ring_.pieces() == 1 ? "" : fmt::format("_{}", p)),
            way};
  }

  int64_t farthest(Way way) const { return way == Way::forth ? ring_.before() : ring_.behind(); }

  Value* sum(Value* a, Value* b) { return ops::NodeBuilder(graph_, site_.value, site_.scatter).add(a, b); }

  // Adds this member's product to the block of the member at this distance, and sends it one member further.
  void pass_on(int64_t distance, int64_t p, Way way) {
    Value* so_far = distance < farthest(way) ? arrived(distance, p, way) : nullptr;
    Value* own = term(way == Way::forth ? distance : -distance, p);
    ring_.send(message(distance, p, way), so_far ? sum(so_far, own) : own, site_.scatter);
  }

  Value* finished(int64_t p) {
    Value* from_before = ring_.before() > 0 ? arrived(0, p, Way::forth) : nullptr;
    Value* from_behind = ring_.behind() > 0 ? arrived(0, p, Way::back) : nullptr;
    Value* own = term(0, p);
    Value* all = from_before ? sum(from_before, own) : own;
    return from_behind ? sum(all, from_behind) : all;
  }

  Program& program_;
  Graph& graph_;
  const ProductScatter& site_;
  const Along along_;
  const BlockRing ring_;
};

}  // namespace

std::variant<ProductScatter, std::string> product_scatter(const Program& program, const flow::Flow& flow,
                                                          Node* scatter) {
  const spmd::CollectiveAttributes collective = spmd::read_collective(*scatter, program.mesh);
  if (flow.of(scatter) >= 0) return "it is in a loop or branch";
  if (scatter->inputs.size() != 1 || !scatter->inputs[0]) return "ranks without a part take part in it";
  if (collective.reduction != Reduction::sum) return "it reduces otherwise than by sum";
  Value* whole = scatter->inputs[0];
  ProductScatter site{whole->producer, scatter, static_cast<size_t>(collective.dim),
                      parse_axes(collective.axes, program.mesh), program.name_of(whole)};
  if (!site.product || !is_product(*site.product)) return "what it reduces is not made by a product";
  const bool is_output = std::any_of(program.outputs.begin(), program.outputs.end(),
                                     [&](const spmd::Port& port) { return port.value == whole; });
  if (whole->uses.size() != 1 || is_output) return "other nodes read the product, too";
  const auto before = program.placements.find(whole), after = program.placements.find(scatter->outputs[0]);
  if (before == program.placements.end() || after == program.placements.end()) return "it is a step of an operator";
  const Sharding &from = before->second.sharding, &to = after->second.sharding;
  if (!from.at.empty()) return "its value lives at a place";
  if (from.dims[site.dim].parts.size() != 1 || to.dims[site.dim].parts.size() != 1)
    return "its dimension is a product of parts";
  const auto axes = axes_between(from.dims[site.dim].parts[0], to.dims[site.dim].parts[0], site.axes);
  if (!axes) return "its dimension is split otherwise";
  site.axes = *axes;
  if (const auto along = along_result(*site.product, site.dim); !along)
    return "the product cannot be computed in pieces along its dimension";
  return site;
}

void decompose(Program& program, const ProductScatter& site, const RingForm& form) {
  ScatterRewrite(program, site, form).run();
}

}  // namespace tessera::passes
