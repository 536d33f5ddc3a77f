#include "tessera/dialect/forms.h"

// Every member passes on its last block: in step s, block m - s goes to member m + 1. Three members, blocks a b c:
//
//             member 0   member 1   member 2
//   starts    a          b          c
//   step 0    c          a          b
//   step 1    b          c          a
//
// The last block comes first: member 0 has b c a, member 1 c a b, member 2 a b c. Two slices restore member order.
namespace tessera::dialect {

Value* ring_all_gather(Body& body) {
  Value *data = body.operand("data"), *bounds = body.operand("bounds");
  const int64_t dim = body.spec().dim;
  Value *next = body.peer(body.member_at(1)), *previous = body.peer(body.member_at(-1));
  std::vector<Value*> pieces = {data};
  for (int64_t s = 0; s + 1 < body.members(); ++s) {
    const std::string step = "gather." + std::to_string(s);
    body.send(pieces.front(), next, step);
    Value* extent = body.extent_of(bounds, body.member_at(-1 - s));
    pieces.insert(pieces.begin(), body.recv(previous, body.with_extent(body.shape_of(data), dim, extent), step));
  }
  return body.unrotate(body.concat(pieces, dim), bounds, dim);
}

}  // namespace tessera::dialect
