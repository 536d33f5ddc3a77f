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

/// Puts functions in the place of their calls if some node in one is annotated for device configuration `name`. What a
/// node says of an operand or result it then says by the name that this has there. What a call says, of its operands,
/// its results and its stage, becomes annotations of Identity nodes at these.
///
///     y = F <c: x = [{d}]> (x)  →  x.as = Identity <c: x = x.as = [{d}]> (x);  y = … (x.as)
///
/// Without such a node, the model stays as it is.
InlinedAnnotations inline_annotated(OnnxModel& model, const std::string& name);

}  // namespace tessera::compiler
