#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

struct InlinedAnnotations {
  std::map<std::string, std::string> copies;  ///< results of Identity nodes at operands of the main graph's calls
  size_t ignored = 0;                         ///< annotated nodes of functions that are operators of Tessera's own
};

/// Inlines functions if a node in one of them is annotated for device configuration `name`. Annotations in bodies then
/// use the names that tensors have in the graph. Annotations of a call (operands, results, stage) become annotations of
/// Identity nodes at its operands and results.
///
///     y = F <c: x = [{d}]> (x)  →  x.as = Identity <c: x = x.as = [{d}]> (x);  y = … (x.as)
///
/// Without such a node, the model stays as it is.
InlinedAnnotations inline_annotated(OnnxModel& model, const std::string& name);

}  // namespace tessera::compiler
