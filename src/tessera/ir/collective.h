#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tessera {

/// A joint operation of the ranks of a group, or of two of them.
enum class Collective : uint8_t {
  all_reduce,      ///< every member gets the reduction of all inputs
  all_gather,      ///< every member gets all members' blocks, in member order
  reduce_scatter,  ///< member j gets block j of the reduction
  all_to_all,      ///< member j gets block j of every member's input
  broadcast,       ///< every member gets the root's input
  reduce,          ///< the root gets the reduction
  gather,          ///< the root gets all blocks
  scatter,         ///< member j gets block j of the root's input
  permute,         ///< each member sends its input to one member at most and receives from one at most
  send,            ///< to one member; never waits for the receiver
  recv,            ///< from one member; pairs with its sends in order
  barrier,         ///< nobody continues before all have arrived
};

/// Which side is a member's block of the whole, along a dimension.
enum class BlockSide { none, operand, result, both };

/// The member that alone has the operand, or the result.
enum class RootRole { none, gives, gets };

/// The properties of a collective, for any engine.
struct CollectiveTraits {
  Collective kind;
  std::string_view op;    ///< the operator of domain tessera.comm
  std::string_view name;  ///< in summaries, profiles and messages
  BlockSide block = BlockSide::none;
  RootRole root = RootRole::none;
  bool reduces = false;
  bool message = false;  ///< between two members
  /// How many times all blocks but one pass any member's link, with the algorithms that move the least; 0: the whole
  /// passes once, or nothing does.
  int passes = 0;
  bool by_levels = false;  ///< may go level by level over links of several kinds
  bool joins = false;      ///< several of one group may be sent as one: each member has one part of every operand
};

/// In the enumerators' order.
std::span<const CollectiveTraits> collectives();
const CollectiveTraits& traits_of(Collective kind);
std::string_view name_of(Collective kind);
/// By the name of its operator, "AllReduce".
std::optional<Collective> collective_of_op(std::string_view op);

/// The elements or bytes that one member receives, with the algorithms that move the least. Its operand has `in` of
/// them and its result `out`; `divided(x, n)` is x / n, rounded down.
template <typename Size, typename Divide>
Size received(Collective kind, const Size& in, const Size& out, int64_t members, Divide divided) {
  const CollectiveTraits& traits = traits_of(kind);
  if (traits.passes == 0 || traits.root == RootRole::gives) return out;
  const Size& whole = traits.block == BlockSide::operand ? out : in;
  return Size(int64_t{traits.passes}) * (whole - divided(whole, members));
}

}  // namespace tessera
