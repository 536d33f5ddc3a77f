#include "tessera/passes/block_ring.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/ops/library/node_builder.h"
#include "tessera/spmd/partition/halo.h"
#include "tessera/spmd/reshard/messages.h"

namespace tessera::passes {

using ops::Interval;

std::string str(const RingForm& form) {
  return fmt::format("{}, {}{}", form.both_ways ? "both ways" : "one way",
                     form.pieces == 1 ? "whole blocks" : fmt::format("{} pieces a block", form.pieces),
                     form.both_halves ? ", both halves" : "") +
         (form.units > 0 ? fmt::format(", {} units of near ranks", form.units) : "");
}

std::optional<std::vector<AxisRef>> axes_between(const Part& coarse, const Part& fine,
                                                 const std::vector<AxisRef>& group) {
  if (!is_prefix(coarse.axes, fine.axes)) return std::nullopt;
  std::vector<AxisRef> axes(fine.axes.begin() + static_cast<std::ptrdiff_t>(coarse.axes.size()), fine.axes.end());
  if (join_axes(axes) != join_axes(group)) return std::nullopt;
  return axes;
}

BlockRing::BlockRing(spmd::Program& program, std::vector<AxisRef> axes, Expr size, RingForm form)
    : program_(program),
      axes_(std::move(axes)),
      size_(std::move(size)),
      form_(form),
      shards_(spmd::shards_of(size_, axes_)),
      me_(spmd::member_along(axes_, program.mesh)),
      before_(form.both_ways ? members() / 2 : members() - 1) {}

Interval BlockRing::piece(int64_t offset, int64_t piece) const {
  const auto cut = [&](const Interval& block) {
    const Expr begin = block.begin + split_offset(block.count(), piece, form_.pieces);
    return Interval{begin, begin + split_extent(block.count(), piece, form_.pieces)};
  };
  const int64_t n = members();
  std::vector<Expr> begins, counts;  // by member
  bool known = true;
  for (int64_t m = 0; m < n; ++m) {
    const Interval own = cut(shards_[static_cast<size_t>((m + offset + n) % n)]);
    begins.push_back(own.begin);
    counts.push_back(own.count());
    known &= own.begin.is_constant() && counts.back().is_constant();
  }
  if (!known) return cut(spmd::shard_of(size_, axes_, offset == 0 ? me_ : mod(me_ + (offset + n), n)));
  const Expr begin = spmd::by_member(me_, begins);
  return {begin, begin + spmd::by_member(me_, counts)};
}

Expr BlockRing::is_straight(int64_t offset) const {
  std::vector<Expr> values;
  for (int64_t m = 0; m < members(); ++m) values.emplace_back(m + offset >= 0 && m + offset < members() ? 1 : 0);
  return spmd::by_member(me_, values);
}

std::vector<int64_t> BlockRing::neighbours(int64_t distance) const {
  std::vector<int64_t> all;
  for (int64_t m = 0; m < members(); ++m) all.push_back((m + distance + members()) % members());
  return all;
}

void BlockRing::send(const Message& message, Value* value, const Node* node) const {
  spmd::Messages(program_, {message.value, message.step, axes_}, node)
      .send(value, neighbours(message.way == Way::forth ? 1 : -1));
}

Value* BlockRing::receive(const Message& message, TensorType type, const Node* node) const {
  return spmd::Messages(program_, {message.value, message.step, axes_}, node)
      .receive(std::move(type), neighbours(message.way == Way::forth ? -1 : 1));
}

namespace {

// All elements of a piece if `there` is 1, none if it is 0.
Value* if_there(Graph& graph, Value* piece, size_t dim, const Expr& there, const std::string& name,
                const Node* before) {
  const Expr count = piece->shape()[dim] * there;
  Node* node = graph.add_node("Slice",
                              {piece, graph.constant_int64({0}), graph.add_expression(name + ".end", {count}),
                               graph.constant_int64({static_cast<int64_t>(dim)})},
                              {name + ".piece"}, "", before);
  Shape shape = piece->shape();
  shape[dim] = count;
  node->outputs[0]->type = {piece->dtype(), std::move(shape)};
  return node->outputs[0];
}

}  // namespace

Value* joined(spmd::Program& program, const BlockRing& ring, const std::vector<std::vector<Value*>>& pieces, size_t dim,
              const TensorType& type, const std::string& name, const Node* before) {
  Graph& graph = *program.graph;
  std::vector<Value*> straight, below, above;  // of the ring's end
  const int64_t first = -ring.before();
  for (size_t o = 0; o < pieces.size(); ++o) {
    const int64_t offset = first + static_cast<int64_t>(o);
    for (Value* piece : pieces[o]) {
      if (offset == 0) {
        straight.push_back(piece);
        continue;
      }
      const Expr is_straight = ring.is_straight(offset);
      straight.push_back(if_there(graph, piece, dim, is_straight, name, before));
      (offset < 0 ? above : below).push_back(if_there(graph, piece, dim, 1 - is_straight, name, before));
    }
  }
  std::vector<Value*> all = std::move(below);
  all.insert(all.end(), straight.begin(), straight.end());
  all.insert(all.end(), above.begin(), above.end());
  Node* node = graph.add_node("Concat", all, {name}, "", before);
  node->set("axis", static_cast<int64_t>(dim));
  node->outputs[0]->type = type;
  return node->outputs[0];
}

}  // namespace tessera::passes
