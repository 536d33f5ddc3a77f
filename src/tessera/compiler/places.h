#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"

namespace tessera::compiler {

/// Where nodes run, as the user names them in the model that was read, and found again in what rewriting makes of it.
class NodePlaces {
 public:
  /// Throws user errors (stage "place") for requests that match no node, and places that the mesh has not.
  NodePlaces(const Graph& read, const std::vector<PlaceRequest>& requests, const Mesh& mesh);

  /// Of the rewritten graph. A node that makes a tensor of the read model is placed as the node that made it there; one
  /// that rewriting has put before others runs with those that use it, if they are all at one place, else everywhere.
  spmd::Places in(const Graph& graph) const;

 private:
  std::map<std::string, std::vector<PlacedAxis>> of_result_;  // of every result of the read model; maybe no place
  bool any_ = false;
};

/// Throws a user error (stage "place") where an annotation splits, or leaves partial, a tensor over an axis along which
/// the node that makes it is placed, or, of a source, one that uses it.
void refuse_contradictions(const std::vector<spmd::Annotation>& annotations, const spmd::Places& places,
                           const Mesh& mesh);

/// The mesh axes that places name.
std::vector<std::string> axes_of(const std::vector<PlaceRequest>& requests, const Mesh& mesh);
/// "pp:1,dp:0", as --place takes it.
std::string request_of(const std::vector<PlacedAxis>& place, const Mesh& mesh);

}  // namespace tessera::compiler
