#pragma once

#include <optional>

#include "tessera/spmd/decide/wishes.h"

namespace tessera::spmd {

/// Lets uses share a layout change across movements (Transpose, Reshape).
///
/// Example: a gradient is split, and both it and its transpose are wanted whole. Changing each where it is used takes
/// two gathers. Gathered before the transpose, it takes one, and the transpose runs on what was gathered. If the whole
/// gradient exists anyway, it takes none.
///
/// A use of a moved value takes it from the movement's operand if more uses want the operand in the layout that this
/// needs than want the moved value, or if the operand is computed in that layout. The movement then gets a further
/// layout (Decisions::repeated), or a different one if no use takes the first. Invariant: a change is done no further
/// above its use than it takes to share it.
///
/// `wishes`: those of the decisions as they are given; made if they are needed and not there.
void share_layout_changes(const Graph& graph, const Layout& layout, Decisions& decisions,
                          std::optional<Wishes>& wishes);

}  // namespace tessera::spmd
