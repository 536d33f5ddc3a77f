#pragma once

#include <string>
#include <vector>

#include "tessera/ir/flow.h"
#include "tessera/proof/statement.h"

namespace tessera::proof {

/// A branch or body of a program in which ranks communicate.
struct Meeting {
  const flow::FlowRegion* region = nullptr;
  std::vector<std::string> axes;  ///< axes of the groups of its communications
};

/// The meetings of a program, in the order of their first nodes.
///
/// All ranks that a region's communications connect, along all axes that these name, must take the same branch and run
/// the same number of iterations. Then a proof for one iteration holds for any number of them: if the nodes before a
/// region, the region, and the nodes after it each begin and end with no message under way and no rank waiting, so does
/// any sequence of them.
std::vector<Meeting> meetings_of(const spmd::Program& program, const flow::Flow& flow,
                                 const std::vector<Communication>& communications);

/// The communications, with a barrier of its ranks where each meeting begins and where it ends.
std::vector<Communication> with_boundaries(const spmd::Program& program,
                                           const std::vector<Communication>& communications);

}  // namespace tessera::proof
