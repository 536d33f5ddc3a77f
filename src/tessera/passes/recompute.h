#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/program.h"

namespace tessera::passes {

struct Context;

/// Which results of the forward pass a program computes again in its backward pass, instead of holding them from one to
/// the other.
struct Recompute {
  enum class Kind {
    none,
    /// All but what products with parameters, convolutions, attention and communications make: element-wise
    /// operators, normalizations, and scores of attention where they are tensors.
    selective,
    full,     ///< everything between the ends of segments (Forward), where the residual stream of a transformer is held
    by_name,  ///< what matches a pattern
    by_cost,  ///< one of none, selective and full for each segment: the choice that frees enough bytes at the least
              ///< cost in time
  };
  Kind kind = Kind::none;
  std::vector<std::string> patterns;       ///< of results: `*` matches any characters
  double bytes_to_free = 0;                ///< by_cost: of what is held when the backward pass begins
  std::vector<std::string> keep_gathered;  ///< patterns of states whose gathered form is held in any case

  /// "none" or nothing, "selective", "full", "auto:BYTES" (by_cost, to free so many), or patterns with commas between
  /// them. A user error for anything else.
  static Recompute parse(std::string_view text);
};

/// Copies nodes of the forward pass to before the first node of the backward pass that reads their results, as the
/// context says, so that the first results need not be held until then. Copies compute the same bits: random numbers
/// are functions of seed, operator and element. The last segment is left alone, since its results are read at once.
///
/// by_cost is a knapsack with one of three choices for each segment, solved exactly for bytes in 4,096ths of the sum:
/// a choice frees the bytes that are held no longer, and costs the copies' FLOPs, bytes and communication. Adds a note
/// that says how much is freed and computed again. A user error for a pattern that matches nothing, and if the program
/// has no backward pass.
void recompute(spmd::Program& program, Context& context);

}  // namespace tessera::passes
