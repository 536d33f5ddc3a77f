#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/layout.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// What sizes of a model's symbols must fulfil for it to run.
struct SizeDemands {
  struct AtLeast {
    Expr value;
    int64_t least = 1;
    std::string node;     ///< label, for the message
    bool needed = false;  ///< else a smaller value, if it is not negative, only leaves a tensor empty
    bool tight = false;   ///< no more than needed is wanted, as of a table that is indexed by position
  };
  std::vector<ExtentEquality> equal;
  std::vector<AtLeast> at_least;
};

/// Of a model after rewriting: extents that operators take to be equal; no tensor empty, or no window fits into it; and
/// tables as long as the positions that index them.
SizeDemands demands_of(const Graph& graph);

struct Sizes {
  Hints of;           ///< every symbol of `given` and `wished`
  std::string unmet;  ///< a demand that was not met, in words; "": all are
};

/// Sizes that meet the demands if any are found: those given, and for the others those wished, changed where a demand
/// says so.
///
///     total = past + sequence, wished 16 each                 → total 32
///     floordiv(floordiv(samples, 5) - 3, 2) + 1 of at least 1 → samples 16, 32
Sizes sizes_that_run(const SizeDemands& demands, const Hints& given, const Hints& wished);

}  // namespace tessera::spmd
