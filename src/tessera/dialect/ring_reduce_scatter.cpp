#include "tessera/dialect/forms.h"

// A partial sum of each block travels once around the ring and ends at the block's owner. In step s member m passes on
// block m - 1 - s and adds its own part of block m - 2 - s to what arrives. Three members, blocks a b c, parts 0 1 2:
//
//             member 0        member 1        member 2
//   starts    c0              a1              b2
//   step 0    b2 + b0         c0 + c1         a1 + a2
//   step 1    a1+a2 + a0      b2+b0 + b1      c0+c1 + c2
//
// Invariant: before step s, member m holds the sum of s + 1 parts of block m - 1 - s. Every block is summed in one
// order, by one member after the other.
namespace tessera::dialect {

Value* ring_reduce_scatter(Body& body) {
  Value *data = body.operand("data"), *bounds = body.operand("bounds");
  const int64_t dim = body.spec().dim;
  Value *next = body.peer(body.member_at(1)), *previous = body.peer(body.member_at(-1));
  Value* sum = body.block_of(data, bounds, body.member_at(-1), dim);
  for (int64_t s = 0; s + 1 < body.members(); ++s) {
    Value* member = body.member_at(-2 - s);
    const std::string step = "scatter." + std::to_string(s);
    body.send(sum, next, step);
    Value* shape = body.with_extent(body.shape_of(data), dim, body.extent_of(bounds, member));
    Value* arrived = body.recv(previous, shape, step);
    sum = body.reduce(arrived, body.block_of(data, bounds, member, dim));
  }
  return body.mean(sum);
}

}  // namespace tessera::dialect
