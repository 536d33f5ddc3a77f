#include <bit>

#include "tessera/dialect/forms.h"

// In round k, members whose indices differ in bit k exchange and add their values: after log2(n) rounds all have the
// whole sum. If n is not a power of two, p is the largest one below: members p … n - 1 first give theirs to members
// 0 … n - 1 - p, and get the result at the end. Six members (p = 4), parts 0 … 5:
//
//             0          1          2       3       4     5
//   fold in   0+4        1+5        2       3       -     -
//   bit 0     0+4+1+5    0+4+1+5    2+3     2+3     -     -
//   bit 1     all        all        all     all     -     -
//   fold out  all        all        all     all     all   all
//
// A member without part in a step sends to nobody and keeps its value. Both of a pair add the same two values, and a +
// b = b + a to the bit, so all members end with the same bits.
namespace tessera::dialect {

Value* doubling_all_reduce(Body& body) {
  const auto n = static_cast<uint64_t>(body.members());
  const auto power = static_cast<int64_t>(std::bit_floor(n)), extra = body.members() - power;
  Value *sum = body.operand("data"), *shape = body.shape_of(sum), *me = body.me();
  Value* inside = body.less(me, power);
  Value* outside = body.number_op("Not", {inside});
  Value* has_extra = body.less(me, extra);
  Value* above = body.number_op("Add", {me, body.number(power)});
  Value* below = body.number_op("Sub", {me, body.number(power)});
  if (extra > 0) {
    body.send(sum, body.peer(below, outside), "in");
    Value* arrived = body.recv(body.peer(above, has_extra), shape, "in");
    sum = body.op("Where", {has_extra, body.reduce(sum, arrived), sum});
  }
  for (int64_t bit = 1; bit < power; bit *= 2) {
    // me xor bit: the bit is added if it is 0, else subtracted.
    Value* digit = body.number_op("Mod", {body.number_op("Div", {me, body.number(bit)}), body.number(2)});
    Value* up = body.number_op("Add", {me, body.number(bit)});
    Value* partner = body.number_op("Sub", {up, body.number_op("Mul", {digit, body.number(2 * bit)})});
    Value* peer = body.peer(partner, extra > 0 ? inside : nullptr);
    const std::string step = "bit." + std::to_string(bit);
    body.send(sum, peer, step);
    sum = body.reduce(sum, body.recv(peer, shape, step));
  }
  if (extra > 0) {
    body.send(sum, body.peer(above, has_extra), "out");
    sum = body.op("Where", {outside, body.recv(body.peer(below, outside), shape, "out"), sum});
  }
  return body.mean(sum);
}

}  // namespace tessera::dialect
