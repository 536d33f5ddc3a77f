#pragma once

#include <functional>
#include <map>
#include <optional>
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

using SolvedSizes = std::map<std::string, SolvedSize, std::less<>>;

/// The sizes of symbols that follow from extents of known sizes: 3 for batch if 2*batch + 1 is 7; then 4 for past if
/// batch*past is 12. An extent says the size of a symbol if it is linear in it and other extents say the rest. A symbol
/// by itself decides before expressions, and the first of two extents. What no size of 0 or more makes true says
/// nothing, so that callers that need the extents to be equal must evaluate them afterwards.
SolvedSizes solve_extents(const std::vector<KnownExtent>& extents);

/// The extent where symbols have these sizes, others staying symbols; nullopt if it then overflows or divides by zero.
std::optional<Expr> with_known(const Expr& extent, const SolvedSizes& sizes);

/// Whether the extent is linear in its one symbol, so that a size of it says the symbol's or contradicts it.
bool says_a_size(const Expr& extent);

}  // namespace tessera
