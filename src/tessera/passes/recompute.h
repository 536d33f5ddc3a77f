#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/program.h"

namespace tessera::passes {

struct Context;

/// The results of the forward pass that a program recomputes in its backward pass instead of holding them in between.
struct Recompute {
  enum class Kind {
    none,
    /// All except results of products with parameters, convolutions, attention and communication: element-wise
    /// operators, normalizations, scores of attention where these are tensors, and what ranks gather of activations.
    selective,
    full,     ///< everything between the ends of segments (Forward), where a transformer's residual stream is held
    by_name,  ///< results that match a pattern
    by_cost,  ///< one of none, selective and full for each segment: the choice that frees enough bytes at the least
              ///< cost in time
  };
  Kind kind = Kind::none;
  std::vector<std::string> patterns;       ///< of results: `*` matches any characters
  double bytes_to_free = 0;                ///< by_cost: bytes to free of those held when the backward pass begins
  std::vector<std::string> keep_gathered;  ///< patterns of states whose gathered form is held in any case

  /// "none" or "", "selective", "full", "auto:BYTES" (by_cost, to free this many), or patterns separated by commas.
  /// Throws a user error for anything else.
  static Recompute parse(std::string_view text);
};

/// Copies nodes of the forward pass before the first node of the backward pass that reads their results, as the
/// context's options say, so that the original results need not be held until then. Copies compute the same bits:
/// random numbers are functions of seed, operator and element. The last segment stays as it is, since its results are
/// read at once.
///
/// by_cost is a knapsack with one of three choices for each segment, solved exactly for bytes in 4,096ths of the sum: a
/// choice frees the bytes that are held no longer, and costs the copies' time: on the machine that is named, else by
/// constants for their FLOPs, bytes and communication. Adds a note with the bytes freed and the operators that run
/// again. Throws a user error if a pattern matches nothing, or the program has no backward pass.
void recompute(spmd::Program& program, Context& context);

}  // namespace tessera::passes
