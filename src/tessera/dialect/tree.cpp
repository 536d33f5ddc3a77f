#include "tessera/dialect/forms.h"

// Binomial trees, on positions counted from the root: v = (me - root) mod n.
namespace tessera::dialect {
namespace {

struct Position {
  Value* v;
  Body& body;

  explicit Position(Body& of) : v(of.member_at(0)), body(of) {
    if (of.spec().root > 0)
      v = of.number_op("Mod",
                       {of.number_op("Add", {v, of.number(of.members() - of.spec().root)}), of.number(of.members())});
  }
  Value* below(int64_t limit) const { return body.less(v, limit); }
};

}  // namespace

// In the round of k = 1, 2, 4, …, positions 0 … k - 1 have the data and send to k … 2k - 1. Six members: 0→1; 0→2 1→3;
// 0→4 1→5.
Value* tree_broadcast(Body& body) {
  Position position(body);
  Value *data = body.operand("data"), *shape = body.shape_of(data);
  const int64_t n = body.members();
  for (int64_t k = 1; k < n; k *= 2) {
    const std::string step = "tree." + std::to_string(k);
    Value* has = position.below(std::min(k, n - k));  // and there is somebody k above
    Value* gets = body.number_op("And", {position.below(2 * k), body.number_op("Not", {position.below(k)})});
    body.send(data, body.peer(body.member_at(k), has), step);
    data = body.op("Where", {gets, body.recv(body.peer(body.member_at(-k), gets), shape, step), data});
  }
  return data;
}

// The same in reverse: in the round of k = 1, 2, 4, …, positions that are odd multiples of k send their sums to the
// position k below. Six members: 1→0 3→2 5→4; 2→0; 4→0. All members but the root end with zeros.
Value* tree_reduce(Body& body) {
  Position position(body);
  Value *data = body.operand("data"), *shape = body.shape_of(data), *sum = data;
  const int64_t n = body.members();
  for (int64_t k = 1; k < n; k *= 2) {
    const std::string step = "tree." + std::to_string(k);
    Value* phase = body.number_op("Mod", {position.v, body.number(2 * k)});
    Value* sends = body.number_op("Equal", {body.scalar(phase), body.scalar(body.number(k))});
    Value* even = body.number_op("Equal", {body.scalar(phase), body.scalar(body.number(0))});
    Value* gets = body.number_op("And", {even, position.below(n - k)});
    body.send(sum, body.peer(body.member_at(-k), sends), step);
    Value* arrived = body.recv(body.peer(body.member_at(k), gets), shape, step);
    sum = body.op("Where", {gets, body.reduce(sum, arrived), sum});
  }
  return body.op("Where", {position.below(1), body.mean(sum), body.zeros(data, shape)});
}

}  // namespace tessera::dialect
