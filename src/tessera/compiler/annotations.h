#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/requests.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"
#include "tessera/spmd/layout/propagate.h"

namespace tessera::compiler {

/// For each request, the names of the matching tensors in the model as read; none if it may name a stack that rewriting
/// makes. A parameter may have its name from before the export. Throws a user error (stage "annotate") for a request
/// that matches nothing.
std::vector<std::vector<std::string>> names_meant(const OnnxModel& read,
                                                  const std::vector<AnnotationRequest>& requests);

/// The requests as annotations of values of the rewritten model; `names` is names_meant(). Optional ones that cannot be
/// followed become warnings. Throws user errors (stage "annotate") that name the tensor and the fix for the others.
std::vector<spmd::Annotation> read_annotations(const OnnxModel& read, const Graph& rewritten,
                                               const std::vector<AnnotationRequest>& requests,
                                               const std::vector<std::vector<std::string>>& names, const Mesh& mesh,
                                               std::vector<std::string>& warnings);

}  // namespace tessera::compiler
