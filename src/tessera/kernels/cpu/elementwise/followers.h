#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tessera/kernels/cpu/library/onednn.h"
#include "tessera/kernels/kernel.h"

/// Element-wise nodes that a kernel applies to its result before it stores it.
namespace tessera::kernels {

/// Whether a node can be a follower at all: one result, and a function that oneDNN's kernels can end with.
bool can_follow(const Node& node);
/// Whether it needs an operand beside the result that it follows.
bool takes_operand(const Node& follower);
/// Whether it maps zeros to zero, so that padding stays padding.
bool keeps_zero(const Node& follower);

/// The followers as oneDNN's post-ops. `operand_layout` is asked for the layout of operand i of the kernel.
std::vector<onednn::PostOp> post_ops(const std::vector<Follower>& followers,
                                     const std::function<onednn::Md(int)>& operand_layout);

/// Runs the root's kernel, then each follower's, in the memory of the result; used if no library kernel computes them
/// all.
std::unique_ptr<Kernel> run_in_turn(const PrepareContext& context, KernelFactory root);

}  // namespace tessera::kernels
