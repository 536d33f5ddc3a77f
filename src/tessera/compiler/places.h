#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"

namespace tessera::compiler {

/// The places of nodes. The user names nodes of the model as read; this finds their places in the rewritten model.
class NodePlaces {
 public:
  /// Throws user errors (stage "place") for requests that match no node, and places that are not in the mesh.
  NodePlaces(const Graph& read, const std::vector<PlaceRequest>& requests, const Mesh& mesh);

  /// The places in the rewritten graph. A node that makes a tensor of the model as read has the place of that tensor's
  /// node there. A node that rewriting has added runs where all its users run, if that is one place, else everywhere.
  spmd::Places in(const Graph& graph) const;

 private:
  std::map<std::string, std::vector<PlacedAxis>> of_result_;  // of every result of the read model; may be empty
  bool any_ = false;
};

/// Throws a user error (stage "place") if an annotation splits a tensor, or leaves it partial, over an axis along which
/// its producer (or, for a source, one of its users) is placed. Optional annotations are removed instead, with a
/// warning.
void refuse_contradictions(std::vector<spmd::Annotation>& annotations, const spmd::Places& places, const Mesh& mesh,
                           std::vector<std::string>& warnings);

/// The mesh axes that places name.
std::vector<std::string> axes_of(const std::vector<PlaceRequest>& requests, const Mesh& mesh);
/// "pp:1,dp:0", as places are written.
std::string request_of(const std::vector<PlacedAxis>& place, const Mesh& mesh);

}  // namespace tessera::compiler
