#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/proof/number.h"
#include "tessera/spmd/program.h"

namespace tessera::proof {

/// The computation of a rank's program, derived from its nodes alone. Beginning at inputs and states, each value has a
/// number, computed from its operator, the attributes and the operands' numbers. Names of values, metadata and the
/// order of independent nodes do not count. Everything that nodes do on this rank counts (offsets, extents, axis
/// indices, peers): integers, and expressions by their values on each rank that runs the program.
///
/// A communication's number includes its place among those that state the same, since that is how ranks' communications
/// match. So two programs of a rank with equal numbers for their outputs, the states' next values and their
/// communications are the same up to order, and if `check_order` finds that all ranks' programs fit together, a run of
/// one is a run of the other.
///
/// Example: y = AllReduce (MatMul (x, w)) is 'AllReduce sum over tp of MatMul of input x and state w, the first of its
/// kind'. y has another number without the AllReduce, with a second one behind it, with max in place of sum, or with
/// the state v in place of w.
///
/// The operands of commutative operators count in any order, and a copy (Identity) has its operand's number. Other
/// spellings of one computation have other numbers (see program_io/normal_form.h).
struct Meaning {
  Number whole;                 ///< of outputs, next values, communications, and of the ports' layouts
  std::vector<uint32_t> steps;  ///< the last 24 bits of the nodes' numbers, sorted, each once: to find a change

  bool operator==(const Meaning&) const = default;
};

/// `ranks`: those that run it, if not all do.
Meaning meaning_of(const spmd::Program& program, const std::vector<int>& ranks = {});

/// Where a program differs from its earlier meaning: the first node, in its order, whose number is new. Nullopt if the
/// meaning is still the same.
std::optional<spmd::Departure> departure(const spmd::Program& program, const Meaning& was,
                                         const std::vector<int>& ranks = {});

}  // namespace tessera::proof
