#pragma once

#include <vector>

#include "tessera/ir/experts.h"
#include "tessera/ops/library/node_builder.h"

/// What the forms of a mixture of experts (ir/experts.h) share.
namespace tessera::ops {

/// Extents of matrices are those of numbers, also where they are codes.
struct ExpertsDims {
  Expr tokens, choices, experts, in, hidden, out;
};

/// A user error that names the node if its operands' extents do not fit together.
ExpertsDims experts_dims(const Node& node);
/// The bits of a matrix's codes, 4 or 8; a user error for other numbers.
int64_t code_bits(const Node& node, const ExpertsCodes& matrix);

inline bool is_experts_shard(const Node& node) {
  return node.op_type == "ExpertsShard";
}

// The result by ordinary operators (experts_forms.cpp):

/// The matrices of each choice are gathered.
std::vector<Value*> experts_body(NodeBuilder& b, const Node& node);
/// Every expert computes all tokens.
Value* every_expert(NodeBuilder& b, const Node& node);

}  // namespace tessera::ops
