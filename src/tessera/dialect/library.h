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
/// unrolled for a group. Each function is made on its first request.
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

  /// The name of the function; makes it, and the functions that it calls, if they do not exist yet.
  std::string name_of(const Spec& spec);
  /// All functions that were made; each stands after those that it calls.
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

/// The largest group whose blocks are listed: longer integer tensors have no known elements.
inline constexpr int64_t kMostBlocks = 63;

/// Up to this many bytes, the form with the fewest steps is chosen. With a message's latency a and b bytes per second,
/// doubling takes log2(n)·(a + B/b), the ring 2(n - 1)·(a + B/(n·b)). For 4 to 16 members they are equal near
/// B = 8·a·b, which is 64 KiB for 2 µs and 4 GB/s.
inline constexpr double kSmallBytes = 65536;

/// The form to use for an operator over a group (see docs/dialect.md):
///   AllReduce       doubling up to kSmallBytes and for more than kMostBlocks members, hierarchical over several axes,
///                   else ring
///   ReduceScatter   exchange up to kSmallBytes, else ring
///   others          the one form there is
std::string form_for(std::string_view op, const std::vector<std::string>& axes, int64_t members, double bytes);

}  // namespace tessera::dialect
