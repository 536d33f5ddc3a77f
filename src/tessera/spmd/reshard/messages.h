#pragma once

#include <string>
#include <vector>

#include "tessera/ir/collective.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// The member's number in its group over these axes.
Expr member_along(const std::vector<AxisRef>& axes, const Mesh& mesh);

/// An expression over this rank's axis indices that has `values[m]` on member m. `me` is the member's number.
Expr by_member(const Expr& me, const std::vector<Expr>& values);

/// What the messages of a group carry, and between whom.
struct MessageTopic {
  std::string name;           ///< of the global value whose elements they carry
  std::string step;           ///< what they are part of, for reports
  std::vector<AxisRef> axes;  ///< of the group, major first
};

/// Appends messages between the members of a group to a program. In one call, each member sends, or receives,
/// at most one message.
class Messages {
 public:
  static constexpr int64_t nobody = -1;

  /// Nodes are added before `before`, or at the end if it is null.
  Messages(Program& program, MessageTopic topic, const Node* before = nullptr);

  /// Member m sends its `piece` to member to[m].
  void send(Value* piece, const std::vector<int64_t>& to);
  /// Member m receives a tensor from member from[m]. Its type is an expression over axis indices; a member that
  /// receives from nobody has no elements.
  Value* receive(TensorType type, const std::vector<int64_t>& from);

 private:
  int64_t rank_of(int64_t member) const;
  Value* ranks_of_peers(const std::vector<int64_t>& peers);
  std::vector<Attribute> attributes_of(Collective kind, DType dtype) const;

  Program& program_;
  Graph& graph_;
  const MessageTopic topic_;
  const Node* before_;
  const Expr me_;
};

}  // namespace tessera::spmd
