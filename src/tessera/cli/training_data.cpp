#include "tessera/cli/training_data.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <vector>

#include "tessera/cli/options.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {

std::optional<Batches> batches_to_evaluate(const TrainOptions& options, const Model& model, const Training& training,
                                           size_t memory_limit) {
  if (options.eval_data.empty() && options.held_out == 0) {
    if (options.eval_every) wrong_training("--eval-every needs data to evaluate; give --eval-data or --held-out 0.05");
    return std::nullopt;
  }
  return Batches::open(options.eval_data.empty() ? options.data : options.eval_data, model, training,
                       options.batches(true, memory_limit));
}

Training evaluation_of(const Model& model, const Training& training, const std::optional<Batches>& evaluated) {
  Training evaluation = training;
  if (!evaluated) return evaluation;
  Plan sized;
  PlanOptions().add_sizes(sized, model.inputs(), evaluated->extents());
  for (const auto& [symbol, size] : sized.shapes) evaluation.sizes[symbol] = size;
  evaluation.label_dims = evaluated->label_dims();
  return evaluation;
}

bool check_data(const Console& console, const Batches& data, const std::optional<Batches>& evaluated,
                const StopSignal& stop) {
  enum Word : int64_t { stops, goes_on, done };
  const auto& connection = console.connection;
  const Progress progress(console, "checking data");
  std::atomic<bool> stopped = false;
  std::future<void> checked = std::async(std::launch::async, [&] {
    if (connection && connection->launch().local_rank > 0) return;
    const auto is_stopped = [&] { return stopped.load(); };
    data.verify(is_stopped);
    if (evaluated) evaluated->verify(is_stopped);
  });
  int64_t least = goes_on;
  try {
    while (least == goes_on) {
      const bool is_done = checked.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
      const int64_t own = stop.asked() ? stops : is_done ? done : goes_on;
      const std::vector<int64_t> all = connection ? connection->from_all(own) : std::vector<int64_t>{own};
      least = *std::min_element(all.begin(), all.end());
    }
  } catch (const Error&) {  // of another rank, which need not wait for the files
    stopped = true;
    throw;
  }
  stopped = least == stops;
  checked.get();
  return !stopped;
}

}  // namespace tessera::cli
