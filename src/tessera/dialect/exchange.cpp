#include "tessera/dialect/engine.h"
#include "tessera/dialect/group.h"
#include "tessera/dialect/schema.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/spmd/program.h"

// Turns an AllToAll along any two dimensions into one in which dimension 0 is both split and joined, as in MPI and
// NCCL. With 2 members, x of shape [2, 6], split_dim = 1, concat_dim = 0:
//
//   x = a b                  Concat of the halves along 0     a      exchanged     a      of member 0
//       (each [2, 3])                                         b                    a'     of member 1, [4, 3]
//
// Here the result is already joined. If concat_dim were 1, the halves of the last column would be put side by side.
namespace tessera::dialect {
namespace {

using rewrite::attribute;

// The equal blocks of x along one dimension, one after the other along another.
std::vector<Value*> blocks_of(Graph& graph, Value* x, int64_t dim, int64_t count, const Node* before) {
  Node* split =
      rewrite::emit_node(graph, "Split", {x}, before, {attribute("axis", dim), attribute("num_outputs", count)},
                         x->name + ".block", static_cast<size_t>(count));
  return split->outputs;
}

}  // namespace

void write_exchange(const Outgoing& outgoing, std::string_view op_type, std::string_view domain,
                    std::vector<Attribute> attributes) {
  Graph& graph = outgoing.graph;
  Node& node = outgoing.node;
  const auto members = static_cast<int64_t>(outgoing.members.size());
  const int64_t split = outgoing.collective.split_dim, concat = outgoing.collective.concat_dim;
  Value* stacked = node.input(0);
  if (split != 0)
    stacked = rewrite::emit(graph, "Concat", blocks_of(graph, stacked, split, members, &node), &node,
                            {attribute("axis", int64_t{0})}, stacked->name + ".stacked");
  if (concat == 0) {
    become(graph, node, op_type, domain, {stacked}, std::move(attributes));
    return;
  }
  Node* exchange = put_before(graph, node, op_type, domain, stacked, stacked->shape());
  exchange->attributes = std::move(attributes);
  become(graph, node, "Concat", "", blocks_of(graph, exchange->outputs[0], 0, members, &node),
         {attribute("axis", concat)});
}

void read_exchange(const Incoming& incoming, const std::vector<std::string>& axes) {
  Graph& graph = incoming.graph;
  Node& node = incoming.node;
  Value* data = node.input(0);
  const Shape shape = incoming.shape();
  const int64_t members = digits_of(axes, incoming.mesh).size;
  const Expr block = block_of(incoming, 0, members);
  // Dimensions 0 and 1 of [1, members·block, …] become [members, block, …].
  Value* raised = rewrite::emit(graph, "Unsqueeze", {data, graph.constant_int64({0})}, &node);
  Shape exchanged = shape;
  exchanged[0] = block;
  exchanged.insert(exchanged.begin(), members);
  Node* exchange = put_before(graph, node, "AllToAll", spmd::kCommDomain, raised, exchanged);
  exchange->attributes = spmd::written({.kind = Collective::all_to_all,
                                        .axes = axes,
                                        .split_dim = 1,
                                        .concat_dim = 0,
                                        .split_extent = block,
                                        .concat_extent = Expr(1)});
  infer_node(*exchange, incoming.mesh);
  become(graph, node, "Reshape", "", {exchange->outputs[0], rewrite::shape_operand(graph, shape)}, {});
}

}  // namespace tessera::dialect
