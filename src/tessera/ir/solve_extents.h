#pragma once

#include <string>
#include <vector>

#include "tessera/ir/expr.h"

namespace tessera {

/// A dimension whose size is known: an input's, whose array is there.
struct KnownExtent {
  Expr extent;
  int64_t size = 0;
};

struct SolvedSize {
  int64_t size = 0;
  size_t by = 0;  ///< which of the extents says so
};

/// The sizes of symbols that follow from extents of known sizes: 3 for batch if 2*batch + 1 is 7; then 4 for past if
/// batch*past is 12. An extent says the size of a symbol if it is linear in it and other extents say the rest. The
/// first that says a symbol's size decides. What no size of 0 or more makes true says nothing, so that whoever needs
/// the extents to be equal evaluates them afterwards.
std::map<std::string, SolvedSize, std::less<>> solve_extents(const std::vector<KnownExtent>& extents);

}  // namespace tessera
