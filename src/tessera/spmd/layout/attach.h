#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/layout/propagate.h"

/// The start of propagation: puts the axes of annotations on the parts of a layout.
namespace tessera::spmd {

/// Puts an annotation's axes on its value, unless an earlier annotation decides there. `approximated` gets a line for
/// each dimension where an optional annotation cannot be followed exactly. Throws a user error for parts that do not
/// line up with the operators' parts.
void attach(Layout& layout, const Annotation& annotation, const Mesh& mesh, std::vector<std::string>& approximated);

/// An annotation "partial" over an axis asks the value's producer to sum over it: the axis goes to the first dimension
/// that the node reduces in this way and that nothing else splits or, if the node only passes sums on, to such a
/// dimension further up. Call it after the other axes of all annotations are attached. If there is no such dimension,
/// it does nothing, and decide() reports the error.
void attach_sums(Layout& layout, const Annotation& annotation);

}  // namespace tessera::spmd
