#pragma once

#include "tessera/cli/console.h"

namespace tessera::cli {

/// How each tensor of a program is split, and why, by blocks of the model. Tensors whose names differ in a number only,
/// and which are split alike for like reasons, share an entry, so that the list grows with the kinds of blocks and not
/// with their number:
///
///     {"tensor": "h.*.fc.weight", "count": 12, "block": "h.*", "kind": "state", "dtype": "float32", "shape": [64,
///     256],
///      "bytes": 32768, "layout": "[-, 256{tp}]", "uses": [], "why": ["tp on dimension 1: …"], "lost": [], "reshards":
///      []}
///
/// `bytes`: of a state, the most that a rank stores of one of them.
Json layouts_json(const Program& program);

}  // namespace tessera::cli
