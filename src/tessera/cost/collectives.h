#pragma once

#include <cstdint>
#include <span>

#include "tessera/ir/collective.h"

/// How long collectives take, given the latency and the bandwidth of their links.
///
/// The model is the alpha-beta model of Hockney (1994), in which a message of b bytes takes α + b·β; the forms' terms
/// are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005),
/// and of Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience"
/// (2007). The model assumes that arithmetic costs nothing.
namespace tessera::cost {

/// The messages and bytes that one form of a collective sends in sequence: time = messages·α + bytes·β.
struct Terms {
  double messages = 0;
  double bytes = 0;
  bool operator==(const Terms&) const = default;
};

/// Members in a ring, or pairwise if every pair exchanges different data: fewest bytes, n - 1 messages per phase.
/// `bytes` counts the whole tensor: the input of all_reduce, reduce_scatter, reduce, broadcast and scatter, the output
/// of all_gather and gather, one member's input of all_to_all, the message of permute, send and recv.
Terms ring(Collective kind, int64_t members, double bytes);

/// Members in a tree, or at doubling distances: about log2(n) messages. Equal to ring() if the kind has no such form.
Terms tree(Collective kind, int64_t members, double bytes);

/// Links of one kind between `size` units of a group. Beta is the time for one byte that every member of the group
/// sends: the link's, times the number of groups that share it.
struct Level {
  int64_t size = 1;
  double alpha = 0;  ///< seconds
  double beta = 0;   ///< seconds per byte
};

/// Seconds of a collective in the better of the two forms, on links of one kind.
double time_on(Collective kind, const Level& level, double bytes);

/// Seconds of a collective over all levels' units as one flat group: every step uses the slowest link.
double flat_time(Collective kind, std::span<const Level> levels, double bytes);

/// Seconds of all_reduce, all_gather and reduce_scatter done level by level, the nearest first. An all_reduce scatters
/// over each level but the last on the way out and gathers over it on the way back. When a unit of m members reaches a
/// level, each member has one m-th of the bytes and all share the unit's link; so every level costs what all bytes
/// would cost one group. (With a link for each member, g members on each of N hosts take the form 2(g-1)α₁ +
/// 2n(g-1)/g·β₁ + 2(N-1)α₂ + 2(n/g)(N-1)/N·β₂, where β₂ is a member's own.) Other kinds: flat_time().
double hierarchical_time(Collective kind, std::span<const Level> levels, double bytes);

/// The factor by which nccl-tests multiplies a kind's bytes per second, so that the result can be compared with a
/// link's bandwidth for any kind and number of members: 2(n-1)/n for all_reduce, (n-1)/n for all_gather,
/// reduce_scatter, all_to_all, gather and scatter, 1 for others.
double bus_factor(Collective kind, int64_t members);

}  // namespace tessera::cost
