#pragma once

#include <set>
#include <vector>

#include "tessera/plan/candidates.h"
#include "tessera/plan/tensor_kinds.h"

/// A local search for the layouts of parameters.
namespace tessera::plan {

struct Annotated {
  std::vector<TriedAnnotation> tried;
  bool ended_early = false;  ///< by the limits
  std::set<size_t> layouts;  ///< that were improved; not by an end before
};

/// Improves the best `plans` of `candidates` that were not improved before, the best first: changes how one axis splits
/// one kind of parameters, takes the best of these changes if it is better by the objective and fits, and goes on with
/// the next kind until no change of any kind is better. Presets and all else stay as they are. The outcome is in
/// `candidates`.
///
/// Example: megatron splits `up` [8, 32] by columns and `down` by rows. For `down=[tp,-]` and an axis of two ranks, the
/// changes are `down=[-,tp]` and `down=[-,-]`; the layouts of `up` and of activations follow by propagation.
void annotate(Annotated& made, Candidates& candidates, const std::vector<TensorKind>& kinds, size_t plans,
              const SearchLimits& limits);

}  // namespace tessera::plan
