#pragma once

#include <cstddef>
#include <optional>

#include "tessera/batches.h"
#include "tessera/cli/console.h"
#include "tessera/cli/stop_signal.h"
#include "tessera/cli/train_options.h"

/// The data of `tessera train`.
namespace tessera::cli {

/// The batches of evaluations, each sample once; nullopt if the options ask for none. Throws a user error for
/// --eval-every without such data, and as Batches::open().
std::optional<Batches> batches_to_evaluate(const TrainOptions& options, const Model& model, const Training& training,
                                           size_t memory_limit);

/// The training that evaluations are compiled for: evaluation data may have other extents than training data.
Training evaluation_of(const Model& model, const Training& training, const std::optional<Batches>& evaluated);

/// Reads all data. This may take long, so that all other checks come first. One process of each machine does it. The
/// others exchange messages with it meanwhile, since no wait may be longer than the timeout. Returns whether it reached
/// the end; false if a process was told to stop. Throws a user error for a value that is out of range.
bool check_data(const Console& console, const Batches& data, const std::optional<Batches>& evaluated,
                const StopSignal& stop);

}  // namespace tessera::cli
