#pragma once

#include <memory>

#include "tessera/kernels/cpu/elementwise/jit/function.h"

namespace tessera::kernels {

/// A node of a group.
struct GroupMember {
  const Node* node;
  std::vector<int> operands;  ///< as Follower has them
  DType dtype;                ///< of its result
  int stored;                 ///< the group's result that it makes; -1: none
};

/// Members that pass over the group's elements together: those of a compiled function, or one with its own kernel.
struct GroupPart {
  size_t begin, end;            ///< members
  std::vector<int> operands;    ///< as Follower has them
  std::vector<size_t> results;  ///< the members whose results it writes
  std::shared_ptr<const jit::Function> function;
};

/// Divides a group whose operands are as given. Members in a row that the compiler knows become functions, as long ones
/// as registers allow.
std::vector<GroupPart> parts_of(const std::vector<GroupMember>& members,
                                const std::vector<jit::Chain::Operand>& operands);

}  // namespace tessera::kernels
