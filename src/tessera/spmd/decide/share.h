#pragma once

#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// Lets uses share a layout change although there are movements (Transpose, Reshape) between them.
///
/// Example: a gradient is split, and both it and its transpose are wanted whole. Changing each where it is used takes
/// two gathers. Gathered before the transpose, it takes one, and the transpose runs on what was gathered. If the whole
/// gradient is there anyhow, it takes none.
///
/// A use of a moved value takes it from the operand of the movement if more uses want the operand in the layout that
/// this takes than want the moved value, or if the operand is made in it. The movement then has a further form
/// (Decisions::repeated), or another one if nobody takes the first. Invariant: a change is done no further above its
/// use than it takes to share it.
void share_layout_changes(const Graph& graph, const Layout& layout, Decisions& decisions);

}  // namespace tessera::spmd
