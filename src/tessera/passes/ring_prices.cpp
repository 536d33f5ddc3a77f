#include "tessera/passes/ring_prices.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/passes/near_members.h"
#include "tessera/passes/node_work.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

double bytes_of(const spmd::Program& program, const Value* value) {
  return spmd::hinted(product(value->shape()), program.hints) * bits_of(value->dtype()) / 8;
}

// A product on one of `parts` equal pieces.
cost::KernelWork work_of_piece(const spmd::Program& program, const Node& node, const Along& along, double parts) {
  const cost::KernelWork whole = work_of(node, program.hints);
  cost::KernelWork work{whole.signature, whole.dtype, whole.flops / parts};
  double elements = 0;
  const auto add = [&](const Value* value, const std::optional<size_t>& dim) {
    if (!value) return;
    const double own = spmd::hinted(product(value->shape()), program.hints) / (dim ? parts : 1);
    elements += own;
    work.bytes += own * bits_of(value->dtype()) / 8;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) add(node.inputs[i], along.operands[i]);
  const Value* result = node.outputs[0];
  add(result, along.result);
  const bool splits_columns = along.result && *along.result + 1 == result->rank();
  cost::add_extents(work, elements, spmd::hinted(product(result->shape()), program.hints) / (along.result ? parts : 1),
                    spmd::hinted(result->shape().back(), program.hints) / (splits_columns ? parts : 1));
  return work;
}

double copy(const cost::Prices& prices, double bytes) {
  return bytes > 0 ? prices.kernel({.signature = "Concat", .bytes = bytes}) : 0;
}

double addition(const cost::Prices& prices, double bytes) {
  return bytes > 0 ? prices.kernel({.signature = "Add", .bytes = 3 * bytes}) : 0;
}

// The messages of a member in the order in which they leave: steps, each with a block for one neighbour or two.
struct Steps {
  int64_t before = 0, behind = 0;
  int64_t count() const { return std::max(before, behind); }
  int64_t blocks(int64_t step) const { return (step <= before) + (step <= behind); }
};

// Seconds of each message, of the collective between near members that follows a message or precedes it, of the product
// of a piece, and of the addition of its sum.
struct Parts {
  double message = 0, near = 0, piece = 0, add = 0;
};

// Seconds of a ring whose blocks are multiplied as they arrive.
double gathered(const Steps& steps, int64_t pieces, const Parts& of) {
  double near = static_cast<double>(pieces) * of.near, computed = near + static_cast<double>(pieces) * of.piece,
         arrived = 0;
  for (int64_t step = 1; step <= steps.count(); ++step)
    for (int64_t p = 0; p < pieces * steps.blocks(step); ++p) {
      arrived += of.message;
      near = std::max(near, arrived) + of.near;
      computed = std::max(computed, near) + of.piece;
    }
  return computed;
}

// Seconds of a ring in which each member computes a block, adds what has arrived, and sends the sum.
double scattered(const Steps& steps, int64_t pieces, const Parts& of) {
  double computed = 0, near = 0, link = 0;
  std::vector<double> arrived;  // of the step before, by block and piece
  for (int64_t step = steps.count(); step >= 0; --step) {
    const int64_t blocks = step == 0 ? 1 : steps.blocks(step);
    std::vector<double> sent;
    for (int64_t k = 0; k < blocks * pieces; ++k) {
      computed += of.piece;
      double ready = near = std::max(near, computed) + of.near;
      if (static_cast<size_t>(k) < arrived.size())
        ready = computed = std::max(ready, arrived[static_cast<size_t>(k)]) + of.add;
      if (step == 0) computed = ready;
      link = std::max(link, ready) + of.message;
      sent.push_back(link);
    }
    if (step == 0)
      for (size_t k = static_cast<size_t>(pieces); k < arrived.size(); ++k)  // what came from behind
        computed = std::max(computed, arrived[k]) + of.add;
    arrived = std::move(sent);
  }
  return computed;
}

// Prices what a candidate becomes in a form, half by half.
class Pricing {
 public:
  Pricing(const spmd::Program& program, const ProductCollective& candidate, const RingForm& form,
          const cost::Prices& prices)
      : program_(program),
        prices_(prices),
        axes_(candidate.axes()),
        form_(form),
        bytes_(passes::bytes_of(program, candidate.collective())),
        units_(units_or_members(axes_, form, blocks_of(candidate))) {
    const int64_t units = ranks_of(units_.far), before = form.both_ways ? units / 2 : units - 1;
    steps_ = {before, units - 1 - before};
    parts_ = static_cast<double>(units * form.pieces);
    shard_ = bytes_ / static_cast<double>(ranks_of(axes_) * form.pieces);
    message_ = prices.collective(Collective::permute, units_.far, shard_);
  }

  RingPrice run(const ProductCollective& candidate) {
    if (const auto* gathers = std::get_if<GatherProduct>(&candidate.site)) {
      price_.transfer = collective(Collective::all_gather);
      gather(gathers->gather->outputs[0], gathers->dim, gathers->products);
    } else if (const auto* scatters = std::get_if<ProductScatter>(&candidate.site)) {
      price_.transfer = collective(Collective::reduce_scatter);
      scatter(*scatters->product, scatters->dim);
    } else {
      const auto& reduces = std::get<ProductReduce>(candidate.site);
      price_.transfer = collective(Collective::all_reduce);
      scatter(*reduces.product, reduces.dim);
      if (form_.both_halves)
        gather(reduces.reduce->outputs[0], reduces.dim, reduces.readers);
      else
        gather_apart(reduces.readers);
    }
    return price_;
  }

 private:
  // The extent of the dimension of which members have blocks.
  static Expr blocks_of(const ProductCollective& candidate) {
    const auto of = [](const Node& node, size_t dim) { return node.outputs[0]->shape()[dim]; };
    if (const auto* gathers = std::get_if<GatherProduct>(&candidate.site)) return of(*gathers->gather, gathers->dim);
    if (const auto* scatters = std::get_if<ProductScatter>(&candidate.site))
      return of(*scatters->product, scatters->dim);
    const auto& reduces = std::get<ProductReduce>(candidate.site);
    return of(*reduces.product, reduces.dim);
  }

  double collective(Collective kind) const { return prices_.collective(kind, axes_, bytes_); }

  // Between the members of a unit, of a block.
  double near(Collective kind) const {
    return units_.near.empty() ? 0 : prices_.collective(kind, units_.near, bytes_ / parts_);
  }

  // The seconds of a product on a piece; adds those of the whole.
  double piece_of(const Node& node, const std::optional<Along>& along) {
    const double whole = prices_.kernel(work_of(node, program_.hints));
    price_.products += whole;
    if (!along) return whole / parts_;
    const cost::KernelWork work = work_of_piece(program_, node, *along, parts_);
    if (price_.parts.empty() && work.depth > 0)
      price_.parts = fmt::format("{} pieces of {:.0f}x{:.0f}x{:.0f}", parts_, work.rows, work.depth, work.columns);
    return prices_.kernel(work);
  }

  void gather(const Value* whole, size_t dim, const std::vector<Node*>& products) {
    double piece = 0, joining = 0;
    for (const Node* node : products) {
      // Nullopt if a Transpose is between them.
      const auto operand = std::find(node->inputs.begin(), node->inputs.end(), whole);
      const std::optional<Along> along =
          operand == node->inputs.end()
              ? std::nullopt
              : along_operand(*node, static_cast<size_t>(operand - node->inputs.begin()), dim);
      piece += piece_of(*node, along);
      const double result = bytes_of(program_, node->outputs[0]);
      if (along && along->result)
        joining += is_contiguous(node->outputs[0], *along->result) ? 0 : copy(prices_, 2 * result);
      else
        joining += (parts_ - 1) * addition(prices_, result);
    }
    price_.pieces += parts_ * piece + joining;
    price_.ring += gathered(steps_, form_.pieces, {message_, near(Collective::all_gather), piece}) + joining;
  }

  // Whether blocks of that dimension are contiguous, so that kernels compute them in place (bind/views.h).
  bool is_contiguous(const Value* result, size_t dim) const {
    const Shape& shape = result->shape();
    return std::all_of(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dim),
                       [&](const Expr& extent) { return spmd::hinted(extent, program_.hints) == 1; });
  }

  void gather_apart(const std::vector<Node*>& products) {
    double whole = 0;
    for (const Node* node : products) whole += prices_.kernel(work_of(*node, program_.hints));
    price_.products += whole;
    price_.pieces += whole;
    price_.ring += collective(Collective::all_gather) + whole;
  }

  void scatter(const Node& product, size_t dim) {
    const double piece = piece_of(product, along_result(product, dim)), add = addition(prices_, shard_);
    price_.pieces += parts_ * piece + (parts_ - static_cast<double>(form_.pieces)) * add;
    price_.ring += scattered(steps_, form_.pieces, {message_, near(Collective::reduce_scatter), piece, add});
  }

  const spmd::Program& program_;
  const cost::Prices& prices_;
  const std::vector<AxisRef>& axes_;
  const RingForm& form_;
  const double bytes_;
  const GroupUnits units_;
  Steps steps_;
  double parts_ = 1;                // pieces of a product
  double shard_ = 0, message_ = 0;  // bytes of what a message carries, and its seconds
  RingPrice price_;
};

}  // namespace

std::string RingPrice::pieces_text() const {
  return fmt::format("{} take {:.2f} times the whole", parts.empty() ? "pieces" : parts,
                     products > 0 ? pieces / products : 1);
}

double bytes_of(const spmd::Program& program, const Node& collective) {
  const bool gathers = spmd::communication_of(collective) == Collective::all_gather;
  return bytes_of(program, gathers ? collective.outputs[0] : collective.inputs[0]);
}

RingPrice price_of(const spmd::Program& program, const ProductCollective& candidate, const RingForm& form,
                   const cost::Prices& prices) {
  return Pricing(program, candidate, form, prices).run(candidate);
}

}  // namespace tessera::passes
