#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/layout/layout.h"

namespace tessera::spmd {

/// An annotation of one value: "state or activation `value` has this layout".
struct Annotation {
  const Value* value = nullptr;
  Sharding sharding;      ///< open dimensions may get more axes; closed ones are exactly this
  std::string by;         ///< "annotation", "plan file", "preset megatron": for explain and messages
  bool optional = false;  ///< if it cannot be followed exactly: followed as closely as possible instead of a user error
};

/// An axis that propagation could not assign, for explain.
struct Lost {
  int slot = 0, dim = 0, part = 0;
  AxisRef axis;
  std::string reason;
};

struct Propagation {
  int rounds = 0;
  std::vector<Lost> lost;
  std::vector<std::string> approximated;  ///< optional annotations that are not followed exactly, in words
};

/// Attaches annotations (the first in the list wins where two disagree) to a layout's parts and spreads their axes
/// through the operators, forwards and backwards, to a fixed point.
///
/// For each subfactor of an operator, the longest axis list among its places spreads: places whose list is a prefix of
/// it get the rest, if their dimension is open and does not name the axis already. If an axis could split two
/// subfactors of an operator, the one with an annotated place wins, then the larger tensor, then the first. Operators
/// that pass elements through go first, then all pass-through factors, then contractions and lookups: so an
/// activation's layout comes from its neighbours before it comes from weights. A node that is placed along an axis, and
/// values that live there, do not spread that axis. The result is deterministic.
///
/// Before that, updates of stored states (storage.h) get the layout in which these are stored. Other readers of such a
/// state ignore its storage layout; readers of an update's result start with its layout.
///
/// Throws a user error for an impossible annotation (an axis used twice, parts that do not line up with the
/// operators').
Propagation propagate(Layout& layout, const std::vector<Annotation>& annotations, const Mesh& mesh,
                      const Storage& storage = {});

}  // namespace tessera::spmd
