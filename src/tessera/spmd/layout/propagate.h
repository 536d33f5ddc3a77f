#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/layout/layout.h"

namespace tessera::spmd {

/// An order about one value: "state or activation `value` is laid out like this".
struct Annotation {
  const Value* value = nullptr;
  Sharding sharding;      ///< open dimensions may get more axes; closed ones are exactly this
  std::string by;         ///< "annotation", "plan file", "preset megatron": for explain and messages
  bool optional = false;  ///< followed as nearly as can be, where it cannot be; else a user error
};

/// An axis that propagation could not put somewhere, for explain.
struct Lost {
  int slot = 0, dim = 0, part = 0;
  AxisRef axis;
  std::string reason;
};

struct Propagation {
  int rounds = 0;
  std::vector<Lost> lost;
  std::vector<std::string> approximated;  ///< optional annotations that are followed otherwise, in words
};

/// Attaches annotations (the first in the list wins where two disagree) to a layout's parts and spreads their axes
/// through the operators, forwards and backwards, to a fixed point.
///
/// Per subfactor of an operator the longest axis list among its places is the one that spreads; places whose list is a
/// prefix of it take the rest, if their dimension is open and does not name the axis already. Where one axis wants two
/// subfactors of an operator, the one with an annotated place wins, then the larger tensor, then the first. Operators
/// that pass elements through go first, then all pass-through factors, then contractions and lookups: so an
/// activation's layout comes from its neighbours before it comes from weights. A node that is placed along an axis, and
/// what lives there, take no part in spreading that axis. Deterministic.
///
/// Before all that, updates of stored states (storage.h) are laid out as these are stored. What else reads such a state
/// takes no notice of how it is stored; what reads what updates make begins with their layout.
///
/// Throws a user error for an annotation that cannot be (the axis twice, parts that cut across the operators').
Propagation propagate(Layout& layout, const std::vector<Annotation>& annotations, const Mesh& mesh,
                      const Storage& storage = {});

}  // namespace tessera::spmd
