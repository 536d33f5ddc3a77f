#pragma once

#include "tessera/bind/order.h"
#include "tessera/bind/packing.h"

namespace tessera::bind {

/// The inputs of preparing steps.
struct StepSources {
  const Subject& subject;
  const std::vector<NodeGroup>& groups;
  const Values& values;
  const PackedWeights& packed;
  const KnownElements& known;
  Places& places;

  /// The place of an operand of a step; absent for an absent operand.
  Location place_of_operand(int step, size_t index) const;
};

/// A step on bound extents, without the places of operands and results: a prepared kernel, or the communication.
Step prepare_step(const StepSources& of, int step, PreparedCommunication communication);

/// All steps.
std::vector<std::shared_ptr<Step>> prepare_steps(const StepSources& of, const std::vector<Action>& actions,
                                                 const std::vector<PreparedCommunication>& communications);

/// The descriptions of the actions.
std::vector<StepInfo> infos_of(const Order& order, const std::vector<std::shared_ptr<Step>>& steps);

}  // namespace tessera::bind
