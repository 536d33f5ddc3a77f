#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/dialect/body.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::dialect {

/// The collectives as model-local ONNX functions of domain tessera.comm over Send, Recv and ONNX's own operators,
/// unrolled for a group. Each is made when it is first asked for.
///
/// Operands of the functions, then `rank` (an int64 scalar: this rank's number in the mesh; or its handle):
///   AllReduce, Broadcast, Reduce, Permute       data
///   AllGather, ReduceScatter, Gather, Scatter   data, bounds (int64: the n + 1 ends of the members' blocks, from 0)
///   AllToAll                                    data, send_bounds, recv_bounds
///   Barrier, AxisIndex, Neighbor                none
/// Attributes: `value` (the global value that moves) and `dtype` (data's, as ONNX numbers types; of a Barrier int64);
/// AxisIndex and Neighbor have none.
class Library {
 public:
  /// `handles`: ranks are handles, and positions and peers come from AxisIndex and Neighbor nodes instead of
  /// arithmetic.
  explicit Library(const Mesh& mesh, bool handles = false) : mesh_(mesh), handles_(handles) {}

  /// The name of the function; it and those that it calls are made if they are not there yet.
  std::string name_of(const Spec& spec);
  /// All that were made; what a function calls stands before it.
  std::vector<Function> take() { return std::move(functions_); }

  /// Operands of a function before `rank`.
  static size_t operand_count(const Spec& spec);

  const Mesh& mesh() const { return mesh_; }
  bool handles() const { return handles_; }

 private:
  Mesh mesh_;
  bool handles_;
  std::vector<Function> functions_;
  std::map<std::string, std::string> names_;  // by all that distinguishes a function
  std::set<std::string> taken_;
};

/// Members of a group whose blocks are listed at most: what is known of an integer tensor's elements ends there.
inline constexpr int64_t kMostBlocks = 63;

/// Up to so many bytes, the form of fewest steps is taken. With a message's latency a and b bytes a second, doubling
/// takes log2(n)·(a + B/b), the ring 2(n - 1)·(a + B/(n·b)): for 4 to 16 members they meet near B = 8·a·b, which is 64
/// KiB for 2 µs and 4 GB/s.
inline constexpr double kSmallBytes = 65536;

/// The form to use for an operator over a group (see docs/dialect.md):
///   AllReduce       doubling up to kSmallBytes and for more than kMostBlocks members, hierarchical over several axes,
///                   else ring
///   ReduceScatter   exchange up to kSmallBytes, else ring
///   others          the one form there is
std::string form_for(std::string_view op, const std::vector<std::string>& axes, int64_t members, double bytes);

}  // namespace tessera::dialect
