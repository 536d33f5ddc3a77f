#pragma once

#include <vector>

#include "tessera/compiler/compile.h"

namespace tessera::compiler {

/// Turns requests about tensors in bodies of control flow into requests by label (rewrite/passes.h), and puts Identity
/// nodes with these labels behind the tensors. A tensor 'h' in the body of a Loop or Scan 'y' is called 'y/h', and one
/// in a branch of an If 'y' 'y/then/h' or 'y/else/h', even if the loop is unrolled. A pattern reaches into a body if it
/// begins with the name of the outermost node and a slash. The first request for a tensor counts, as everywhere.
///
/// Requests that match no tensor in a body stay as they are.
std::vector<AnnotationRequest> label_in_bodies(OnnxModel& model, const std::vector<AnnotationRequest>& requests);

}  // namespace tessera::compiler
