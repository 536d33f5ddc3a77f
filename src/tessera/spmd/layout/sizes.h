#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/layout/layout.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// Conditions on the sizes of a model's symbols under which it runs.
struct SizeDemands {
  struct AtLeast {
    Expr value;
    int64_t least = 1;
    std::string node;     ///< label, for the message
    bool needed = false;  ///< false: a smaller value, if not negative, only leaves a tensor empty
    bool tight = false;   ///< prefer the smallest size that meets it, as for a table that is indexed by position
  };
  std::vector<ExtentEquality> equal;
  std::vector<AtLeast> at_least;
};

/// The demands of a model after rewriting: extents that operators assume to be equal are equal, no tensor is empty or
/// too small for its windows, and tables are long enough for the positions that index them.
SizeDemands demands_of(const Graph& graph);

struct Sizes {
  Hints of;           ///< every symbol of `given` and `wished`
  std::string unmet;  ///< a demand that was not met, in words; "" if all were
};

/// Sizes that meet the demands, if such are found: the given sizes and, for other symbols, the preferred ones, changed
/// where a demand requires it.
///
///     total = past + sequence, wished 16 each                 → total 32
///     floordiv(floordiv(samples, 5) - 3, 2) + 1 of at least 1 → samples 16, 32
Sizes sizes_that_run(const SizeDemands& demands, const Hints& given, const Hints& wished);

}  // namespace tessera::spmd
