#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/proof/number.h"
#include "tessera/spmd/program.h"

namespace tessera::proof {

/// The computation of a rank's program, derived from its nodes alone. Starting from inputs and states, each value gets
/// a number that is computed from its operator, attributes and operands' numbers. Names of values, metadata and the
/// order of independent nodes do not count. All that nodes do on this rank counts (offsets, extents, axis indices,
/// peers): integers, and expressions by their values on each rank that runs the program.
///
/// A communication's number includes its position among those with the same statement, since ranks' communications
/// match by this position. So two programs of a rank whose outputs, next values and communications have equal numbers
/// are the same up to order; if `check_order` finds that all ranks' programs fit together, a run of one is also a run
/// of the other.
///
/// Example: y = AllReduce (MatMul (x, w)) is 'AllReduce sum over tp of MatMul of input x and state w, the first of its
/// kind'. y has another number without the AllReduce, with a second one after it, with max instead of sum, or with the
/// state v instead of w.
///
/// The operands of commutative operators count in any order, and a copy (Identity) has its operand's number. Different
/// spellings of a computation otherwise have different numbers (see program_io/normal_form.h).
struct Meaning {
  Number whole;                 ///< of outputs, next values, communications, and of the ports' layouts
  std::vector<uint32_t> steps;  ///< the last 24 bits of the nodes' numbers, sorted, each once: to find a change

  bool operator==(const Meaning&) const = default;
};

/// `ranks`: those that run it, if not all.
Meaning meaning_of(const spmd::Program& program, const std::vector<int>& ranks = {});

/// Where a program differs from its earlier meaning: the first node with a new number. Nullopt if the meaning is the
/// same.
std::optional<spmd::Departure> departure(const spmd::Program& program, const Meaning& was,
                                         const std::vector<int>& ranks = {});

}  // namespace tessera::proof
