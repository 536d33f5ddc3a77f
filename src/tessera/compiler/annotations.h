#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/requests.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"
#include "tessera/spmd/layout/propagate.h"

namespace tessera::compiler {

/// By request, the names of the tensors that it means in the model as it was read; none if it may name a stack that
/// rewriting makes. A parameter may be named as the model that was exported names it. Throws a user error (stage
/// "annotate") for a request that matches nothing.
std::vector<std::vector<std::string>> names_meant(const OnnxModel& read,
                                                  const std::vector<AnnotationRequest>& requests);

/// The requests as annotations of values of the rewritten model; `names` is names_meant(). Optional ones that cannot be
/// followed become warnings. Throws user errors (stage "annotate") that name the tensor and the fix for the others.
std::vector<spmd::Annotation> read_annotations(const OnnxModel& read, const Graph& rewritten,
                                               const std::vector<AnnotationRequest>& requests,
                                               const std::vector<std::vector<std::string>>& names, const Mesh& mesh,
                                               std::vector<std::string>& warnings);

}  // namespace tessera::compiler
