#include "tessera/dialect/forms.h"

// In step s member m sends block m + s of the split dimension to its owner, and receives its own block from member
// m - s. The received blocks have the order m - n + 1, …, m - 1, m, which is m + 1, …, n - 1, 0, …, m, as after a
// ring's all-gather.
namespace tessera::dialect {

Value* pairwise_all_to_all(Body& body) {
  Value *data = body.operand("data"), *split = body.operand("send_bounds"), *joined = body.operand("recv_bounds");
  const int64_t split_dim = body.spec().dim, concat_dim = body.spec().concat_dim;
  Value* own = body.block_of(data, split, body.me(), split_dim);
  std::vector<Value*> pieces = {own};
  for (int64_t s = 1; s < body.members(); ++s) {
    const std::string step = "exchange." + std::to_string(s);
    body.send(body.block_of(data, split, body.member_at(s), split_dim), body.peer(body.member_at(s)), step);
    Value* source = body.member_at(-s);
    Value* shape = body.with_extent(body.shape_of(own), concat_dim, body.extent_of(joined, source));
    pieces.insert(pieces.begin(), body.recv(body.peer(source), shape, step));
  }
  return body.unrotate(body.concat(pieces, concat_dim), joined, concat_dim);
}

}  // namespace tessera::dialect
