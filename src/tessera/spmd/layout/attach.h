#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/layout/propagate.h"

/// What propagation begins with: the axes that annotations put on the parts of a layout.
namespace tessera::spmd {

/// Puts an annotation's axes on its value, where no earlier one has spoken. `approximated` gets a line for each
/// dimension of an optional annotation that is followed otherwise. Throws a user error for parts that cut across the
/// operators'.
void attach(Layout& layout, const Annotation& annotation, const Mesh& mesh, std::vector<std::string>& approximated);

/// An annotation that says "partial" over an axis asks the node that makes the value to sum over it: the axis goes to
/// the first dimension that the node reduces so and that nothing else splits; or, if the node only hands sums on, to
/// such a dimension further up. To be called after the other axes of all annotations are attached. If there is no such
/// dimension, nothing is done, and decide() says so.
void attach_sums(Layout& layout, const Annotation& annotation);

}  // namespace tessera::spmd
