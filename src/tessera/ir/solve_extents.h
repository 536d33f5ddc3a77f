#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/expr.h"

namespace tessera {

/// A dimension whose size is known, because its input's array is given.
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
/// batch*past is 12. An extent determines the size of a symbol if it is linear in it and the other symbols are known. A
/// symbol alone has precedence over expressions, and the first extent over later ones. Extents that no size of 0 or
/// more satisfies are ignored, so callers that need equal extents must evaluate them afterwards.
SolvedSizes solve_extents(const std::vector<KnownExtent>& extents);

/// The extent where symbols have these sizes, others staying symbols; nullopt if it then overflows or divides by zero.
std::optional<Expr> with_known(const Expr& extent, const SolvedSizes& sizes);

/// Whether the extent is linear in its only symbol, so that its size determines the symbol's or contradicts it.
bool says_a_size(const Expr& extent);

}  // namespace tessera
