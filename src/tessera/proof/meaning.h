#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/proof/number.h"
#include "tessera/spmd/program.h"

namespace tessera::proof {

/// What a rank's program computes, derived from its nodes alone: each value has a number, made of its operator, the
/// attributes and the operands' numbers, from inputs and states on. What values are called, what metadata say of them
/// and how independent nodes are sorted does not count; what nodes do on this rank (offsets, extents, indices along
/// axes, peers) does: integers, and expressions by what they are on each rank that runs the program.
///
/// A communication's number has its place among those that state the same, since that is how ranks' communications find
/// each other. So two programs of a rank that have equal numbers for their outputs, the states' next values and all
/// that they communicate are the same up to order, and where `check_order` finds that all ranks' fit together, a run of
/// the one is a run of the other.
///
/// Example: y = AllReduce (MatMul (x, w)) is 'AllReduce sum over tp of MatMul of input x and state w, the first of its
/// kind'. Without the AllReduce, or with another one behind it, with max for sum, or with the state v in the place of
/// w, y's number is another.
///
/// The operands of commutative operators count in any order, and copies (Identity) are what they copy. Other spellings
/// of one computation have other numbers (see program_io/normal_form.h).
struct Meaning {
  Number whole;                 ///< of outputs, next values and all that is communicated, and of the ports' layouts
  std::vector<uint32_t> steps;  ///< of the nodes' numbers the last 24 bits, sorted, each once: to tell where it changed

  bool operator==(const Meaning&) const = default;
};

/// `ranks`: that run it, if they are not all.
Meaning meaning_of(const spmd::Program& program, const std::vector<int>& ranks = {});

/// Where a program departs from what it was: the first node, in its order, that does what none did then. Nullopt if it
/// is still the same.
std::optional<spmd::Departure> departure(const spmd::Program& program, const Meaning& was,
                                         const std::vector<int>& ranks = {});

}  // namespace tessera::proof
