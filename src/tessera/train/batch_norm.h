#pragma once

#include <functional>

#include "tessera/ir/graph.h"
#include "tessera/train/step.h"

namespace tessera::train {

/// Whether a BatchNormalization uses the statistics of the batch.
bool trains(const Node& batch_normalization, BatchNorm how);

/// Visits the running statistics that BatchNormalizations which train read from states, with node and operand.
void for_each_statistic(const Graph& graph, BatchNorm how,
                        const std::function<void(Node* node, size_t operand, Value* state)>& visit);

}  // namespace tessera::train
