#include "tessera/dialect/forms.h"

// Each block goes straight to its destination. A member without part in a message sends to nobody, and gets zeros from
// nobody.
namespace tessera::dialect {

// The root sends each other member its block.
Value* direct_scatter(Body& body) {
  Value *data = body.operand("data"), *bounds = body.operand("bounds");
  const Spec& spec = body.spec();
  Value* is_root = body.is_me(spec.root);
  for (int64_t member = 0; member < body.members(); ++member)
    if (member != spec.root)
      body.send(body.block_of(data, bounds, body.number(member), spec.dim), body.peer(body.number(member), is_root),
                "block");
  Value* own = body.block_of(data, bounds, body.me(), spec.dim);
  if (body.members() == 1) return own;
  Value* root = body.peer(body.number(spec.root), body.number_op("Not", {is_root}));
  return body.op("Where", {is_root, own, body.recv(root, body.shape_of(own), "block")});
}

// Every other member sends its block to the root, which joins them. On other members all is zeros: in place of the
// root's own block they take as many zeros as that block is long.
Value* direct_gather(Body& body) {
  Value *data = body.operand("data"), *bounds = body.operand("bounds");
  const Spec& spec = body.spec();
  Value* is_root = body.is_me(spec.root);
  body.send(data, body.peer(body.number(spec.root), body.number_op("Not", {is_root})), "block");
  std::vector<Value*> pieces;
  for (int64_t member = 0; member < body.members(); ++member) {
    Value* extent = body.extent_of(bounds, body.number(member));
    Value* shape = body.with_extent(body.shape_of(data), spec.dim, extent);
    if (member != spec.root) {
      pieces.push_back(body.recv(body.peer(body.number(member), is_root), shape, "block"));
      continue;
    }
    Value* kept = body.number_op("Where", {is_root, extent, body.number(0)});
    pieces.push_back(body.slice(data, body.number(0), kept, spec.dim));
    pieces.push_back(body.slice(body.zeros(data, shape), kept, extent, spec.dim));
  }
  return body.concat(pieces, spec.dim);
}

// Each member's target and source are read from two tables.
Value* direct_permute(Body& body) {
  const std::vector<int64_t>& targets = body.spec().targets;
  std::vector<int64_t> sources(targets.size(), -1);
  for (size_t member = 0; member < targets.size(); ++member)
    if (targets[member] >= 0) sources[static_cast<size_t>(targets[member])] = static_cast<int64_t>(member);
  auto peer_of = [&](const std::vector<int64_t>& table) {
    Value* member = body.number_op("Gather", {body.numbers(table), body.me()});
    return body.peer(member, body.number_op("Not", {body.less(member, 0)}));
  };
  Value* data = body.operand("data");
  body.send(data, peer_of(targets), "permute");
  return body.recv(peer_of(sources), body.shape_of(data), "permute");
}

}  // namespace tessera::dialect
