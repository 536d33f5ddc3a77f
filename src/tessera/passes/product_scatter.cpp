#include "tessera/passes/product_scatter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tessera/ops/library/node_builder.h"
#include "tessera/passes/near_members.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/passes/ring_collective.h"

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
        size_(site.product->outputs[0]->shape()[site.dim]),
        units_(units_or_members(site.axes, form, size_)),
        members_(program, site.axes, size_, {}),
        ring_(program, units_.far, size_, form),
        near_(program, units_.near, site.value) {}

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
    Value* block = on_piece(program_, *site_.product, along_, ring_.piece(offset, p), {}, site_.scatter);
    return near_.summed(block, site_.dim, extent(offset, p), site_.scatter);
  }

  // Of what a message has of the block at this offset.
  Expr extent(int64_t offset, int64_t p) const {
    return near_.count() == 1 ? ring_.piece(offset, p).count() : members_.piece(offset * near_.count(), 0).count();
  }

  // The sum of a block that comes from this way; `distance` members further is its owner.
  Value* arrived(int64_t distance, int64_t p, Way way) {
    TensorType type = site_.product->outputs[0]->type;
    (*type.shape)[site_.dim] = extent(way == Way::forth ? distance : -distance, p);
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
  const Expr size_;  // of the dimension
  const GroupUnits units_;
  const BlockRing members_;  // all of the group
  const BlockRing ring_;
  const NearMembers near_;
};

}  // namespace

std::variant<ProductScatter, std::string> product_scatter(const Program& program, const flow::Flow& flow,
                                                          Node* scatter) {
  const auto product = summed_product(program, *scatter);
  if (const auto* why = std::get_if<std::string>(&product)) return *why;
  auto collective = ring_collective(program, flow, *scatter);
  if (auto* why = std::get_if<std::string>(&collective)) return std::move(*why);
  auto& [dim, axes, value] = std::get<RingCollective>(collective);
  if (!along_result(*std::get<Node*>(product), dim))
    return "the product cannot be computed in pieces along its dimension";
  return ProductScatter{std::get<Node*>(product), scatter, dim, std::move(axes), std::move(value)};
}

void decompose(Program& program, const ProductScatter& site, const RingForm& form) {
  ScatterRewrite(program, site, form).run();
}

}  // namespace tessera::passes
