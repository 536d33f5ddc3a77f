#pragma once

#include <cstdint>
#include <span>

#include "tessera/comm/communicator.h"

/// How long collectives take, by the latency and the bandwidth of the links that they go over.
///
/// The model is the alpha-beta model of Hockney (1994), in which a message of b bytes takes α + b·β; the forms' terms
/// are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005),
/// and of Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience"
/// (2007). Arithmetic is taken to cost nothing.
namespace tessera::cost {

/// What a form of a collective sends one after the other: time = messages·α + bytes·β.
struct Terms {
  double messages = 0;
  double bytes = 0;
  bool operator==(const Terms&) const = default;
};

/// Members in a ring, or pairwise where every pair exchanges something else: least bytes, n - 1 messages a phase.
/// `bytes` is the whole tensor's: of the input of all_reduce, reduce_scatter, reduce, broadcast and scatter, of the
/// output of all_gather and gather, of one member's input of all_to_all, of the message of permute, send and recv.
Terms ring(comm::Kind kind, int64_t members, double bytes);

/// Members in a tree, or at distances that double: about log2(n) messages. Equal to ring() where there is no such form.
Terms tree(comm::Kind kind, int64_t members, double bytes);

/// Links of one kind between `size` units of a group. Beta is of one byte that every member of the group sends: the
/// link's, times the number of groups that share it.
struct Level {
  int64_t size = 1;
  double alpha = 0;  ///< seconds
  double beta = 0;   ///< seconds per byte
};

/// Seconds of a collective in the better of the two forms, on links of one kind.
double time_on(comm::Kind kind, const Level& level, double bytes);

/// Seconds of the same over all levels' units as one flat group: the slowest link is in every step of it.
double flat_time(comm::Kind kind, std::span<const Level> levels, double bytes);

/// Seconds of all_reduce, all_gather and reduce_scatter done level by level, the nearest first: of an all_reduce, each
/// level but the last is scattered over on the way out and gathered over on the way back. Where a unit of m members
/// comes to a level, each of them has one m-th of the bytes and all share the unit's link; so every level costs what
/// the whole bytes would cost one group. (With a link for each member it is the form 2(g-1)α₁ + 2n(g-1)/g·β₁ +
/// 2(N-1)α₂ + 2(n/g)(N-1)/N·β₂ of g members on each of N hosts, β₂ being a member's own.) Other kinds: flat_time().
double hierarchical_time(comm::Kind kind, std::span<const Level> levels, double bytes);

/// What nccl-tests multiplies a kind's bytes per second with, so that the result can be compared with a link's
/// bandwidth whatever the kind and the number of members: 2(n-1)/n of all_reduce, (n-1)/n of all_gather,
/// reduce_scatter, all_to_all, gather and scatter, 1 of others.
double bus_factor(comm::Kind kind, int64_t members);

}  // namespace tessera::cost
