#include "tessera/passes/ring_prices.h"

#include <algorithm>

#include "tessera/passes/node_work.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

double bytes_of(const spmd::Program& program, const Value* value) {
  return spmd::hinted(product(value->shape()), program.hints) * bits_of(value->dtype()) / 8;
}

// The factor of a product along the candidate's dimension; nullopt if a Transpose is between them.
std::optional<Along> factor_of(const ProductCollective& candidate, const Node& node) {
  if (const auto* scatters = std::get_if<ProductScatter>(&candidate.site)) return along_result(node, scatters->dim);
  const auto& gathers = std::get<GatherProduct>(candidate.site);
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] == gathers.gather->outputs[0]) return along_operand(node, i, gathers.dim);
  return std::nullopt;
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

// Seconds of a ring whose blocks are multiplied as they arrive.
double gathered(const Steps& steps, int64_t pieces, double message, double piece) {
  double computed = static_cast<double>(pieces) * piece, arrived = 0;
  for (int64_t step = 1; step <= steps.count(); ++step)
    for (int64_t p = 0; p < pieces * steps.blocks(step); ++p) {
      arrived += message;
      computed = std::max(computed, arrived) + piece;
    }
  return computed;
}

// Seconds of a ring in which each member computes a block, adds what has arrived, and sends the sum.
double scattered(const Steps& steps, int64_t pieces, double message, double piece, double add) {
  double computed = 0, link = 0;
  std::vector<double> arrived;  // of the step before, by block and piece
  for (int64_t step = steps.count(); step >= 0; --step) {
    const int64_t blocks = step == 0 ? 1 : steps.blocks(step);
    std::vector<double> sent;
    for (int64_t k = 0; k < blocks * pieces; ++k) {
      computed += piece;
      if (static_cast<size_t>(k) < arrived.size()) computed = std::max(computed, arrived[static_cast<size_t>(k)]) + add;
      link = std::max(link, computed) + message;
      sent.push_back(link);
    }
    if (step == 0)
      for (size_t k = static_cast<size_t>(pieces); k < arrived.size(); ++k)  // what came from behind
        computed = std::max(computed, arrived[k]) + add;
    arrived = std::move(sent);
  }
  return computed;
}

}  // namespace

double bytes_of(const spmd::Program& program, const Node& collective) {
  const bool gathers = spmd::communication_of(collective) == Collective::all_gather;
  return bytes_of(program, gathers ? collective.outputs[0] : collective.inputs[0]);
}

RingPrice price_of(const spmd::Program& program, const ProductCollective& candidate, const RingForm& form,
                   const cost::Prices& prices) {
  const auto members = static_cast<double>(ranks_of(candidate.axes()));
  const double parts = members * static_cast<double>(form.pieces);
  const double bytes = bytes_of(program, candidate.collective());
  const bool gathers = std::holds_alternative<GatherProduct>(candidate.site);
  RingPrice price{
      prices.collective(gathers ? Collective::all_gather : Collective::reduce_scatter, candidate.axes(), bytes)};
  double piece = 0, joining = 0;
  for (const Node* node : candidate.products()) {
    const cost::KernelWork whole = work_of(*node, program.hints);
    price.products += prices.kernel(whole);
    const auto along = factor_of(candidate, *node);
    piece += along ? prices.kernel(work_of_piece(program, *node, *along, parts)) : prices.kernel(whole) / parts;
    const double result = bytes_of(program, node->outputs[0]);
    if (gathers && along && along->result)
      joining += copy(prices, 2 * result);
    else if (gathers)
      joining += (parts - 1) * addition(prices, result);
  }
  const double add = gathers ? 0 : addition(prices, bytes / parts);
  const double message = prices.collective(Collective::permute, candidate.axes(), bytes / parts);
  const auto count = static_cast<int64_t>(members);
  const int64_t before = form.both_ways ? count / 2 : count - 1;
  const Steps steps{before, count - 1 - before};
  price.pieces = parts * piece + joining + static_cast<double>(form.pieces) * (members - 1) * add;
  price.ring = gathers ? gathered(steps, form.pieces, message, piece) + joining
                       : scattered(steps, form.pieces, message, piece, add);
  return price;
}

}  // namespace tessera::passes
