#pragma once

#include "tessera/bind/machine.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// The communication of one node.
class NodeCommunication : public bind::Communication {
 public:
  /// The operation for the communicator, without buffers.
  virtual const comm::Operation& operation() const = 0;
  /// This rank's index in the group.
  virtual int member() const = 0;
};

/// Requests the communicator only at the first start, so that a plan can be made without a world. Fills in the fields
/// of `info` that describe communication.
std::unique_ptr<NodeCommunication> prepare_communication(const Node& node, RankState& rank, const SymbolLookup& symbols,
                                                         bind::StepInfo& info);

}  // namespace tessera::runtime
