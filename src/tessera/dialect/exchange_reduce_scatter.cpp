#include "tessera/dialect/forms.h"

// All-scatter-reduce: every member sends each other member its part of that member's block, then adds the parts of its
// own block, in member order, as the collective does. n - 1 messages of an n-th, none of which waits for another one:
//
//   member 0 has a0 b0 c0, member 1 a1 b1 c1, member 2 a2 b2 c2; member 1 gets b0 and b2, and adds b0 + b1 + b2.
namespace tessera::dialect {

Value* exchange_reduce_scatter(Body& body) {
  Value *data = body.operand("data"), *bounds = body.operand("bounds"), *me = body.me();
  const int64_t dim = body.spec().dim, n = body.members();
  Value* own = body.block_of(data, bounds, me, dim);
  Value* row = body.flat(own);
  std::vector<Value*> parts = {row};  // of members me - s, me - s + 1, …, me, one after the other
  for (int64_t s = 1; s < n; ++s) {
    const std::string step = "exchange." + std::to_string(s);
    body.send(body.flat(body.block_of(data, bounds, body.member_at(s), dim)), body.peer(body.member_at(s)), step);
    parts.insert(parts.begin(), body.recv(body.peer(body.member_at(-s)), body.shape_of(row), step));
  }
  // All parts are as large as the block.
  std::vector<int64_t> indices;
  for (int64_t member = 0; member <= n; ++member) indices.push_back(member);
  Value* ends = body.number_op("Mul", {body.shape_of(row), body.numbers(indices)});
  Value* ordered = body.unrotate(body.concat(parts, 0), ends, 0);
  Value* sum = body.block_of(ordered, ends, body.number(0), 0);
  for (int64_t member = 1; member < n; ++member)
    sum = body.reduce(sum, body.block_of(ordered, ends, body.number(member), 0));
  return body.reshape(body.mean(sum), body.shape_of(own));
}

}  // namespace tessera::dialect
