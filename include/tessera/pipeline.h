#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Schedules of pipelines as tables: which rank computes what of which stage and micro-batch, in which order
/// (docs/pipelines.md). All errors are user errors of the stage "pipeline", and name the cell.
namespace tessera {
inline namespace v1 {

/// What an action of a schedule does. The comments give the names in files.
enum class PipelineWork : uint8_t {
  none,              ///< an empty cell
  forward,           ///< F
  backward,          ///< B: both gradients
  input_gradient,    ///< I: the gradient that the previous stage waits for
  weight_gradient,   ///< W: the gradients of the stage's own parameters
  send_forward,      ///< SEND_F: the stage's result, to the next stage
  receive_forward,   ///< RECV_F: the previous stage's result
  send_backward,     ///< SEND_B: the stage's input gradient, to the previous stage
  receive_backward,  ///< RECV_B: the next stage's input gradient
  unshard,           ///< UNSHARD: gathers the stage's parameters; these three have no micro-batch
  reshard,           ///< RESHARD: drops them again
  reduce_gradients,  ///< REDUCE_GRAD: adds the stage's gradients over its replicas
};

/// "1I2": the input gradient of stage 1 for micro-batch 2. Both count from 0.
struct PipelineAction {
  PipelineWork work = PipelineWork::none;
  int64_t stage = -1;
  int64_t micro_batch = -1;  ///< -1: none

  bool operator==(const PipelineAction&) const = default;
};

/// One slot of a rank: idle, one action, or two that overlap: "(0F7;7B3)OVERLAP_F_B".
struct PipelineCell {
  PipelineAction first, second;

  bool idle() const { return first.work == PipelineWork::none; }
  bool overlapped() const { return second.work != PipelineWork::none; }
  /// As files write it; "" if idle.
  std::string str() const;
  bool operator==(const PipelineCell&) const = default;
};

/// A schedule. A rank computes its cells in order, each as soon as its operands are there. Idle cells only help to read
/// the table.
struct PipelineTable {
  int64_t stages = 0, micro_batches = 0;
  std::vector<int64_t> rank_of;                  ///< by stage, the rank that computes it
  std::vector<std::vector<PipelineCell>> ranks;  ///< by rank, its cells

  /// The stages of a rank, ascending.
  std::vector<int64_t> stages_of(int64_t rank) const;
  bool operator==(const PipelineTable&) const = default;
};

/// A schedule that make_pipeline knows.
struct PipelineScheduleInfo {
  std::string name;       ///< "interleaved:V"
  std::string describes;  ///< one line
};
std::vector<PipelineScheduleInfo> pipeline_schedules();
/// Whether a text names one of these, with any number behind a colon, or is "auto"; other texts are paths of tables.
bool is_pipeline_schedule(std::string_view text);

struct PipelineSizes {
  int64_t ranks = 1, micro_batches = 1;
  int64_t stages = 0;  ///< 0: as the schedule needs; only interleaved takes others, a multiple of the ranks
};

/// The table of the schedule called `name`, as pipeline_schedules() lists them ("interleaved:2").
PipelineTable make_pipeline(std::string_view name, const PipelineSizes& sizes);

/// Reads the CSV of torch.distributed.pipelining: a line for each rank, a cell for each slot. Stages are on the rank
/// that has most of their cells. Check the result before use. `source` names the file in errors.
PipelineTable parse_pipeline(std::string_view csv, std::string_view source);
/// Reads the file. An error lists the schedules if there is no such file.
PipelineTable load_pipeline(const std::filesystem::path& path);
/// Writes it.
std::string pipeline_csv(const PipelineTable& table);

/// What the check of a table has proved beyond what it refuses.
struct PipelineProof {
  bool trains = false;  ///< it has gradients; otherwise only forward passes
  /// The messages that a link must hold between two stages, in one direction, so that no rank waits for ever. Longer
  /// queues never block either.
  int64_t queue = 1;
  /// Cells whose gradients are added in another order than that of the micro-batches: sums then differ in their last
  /// bits from those of other schedules. The first one; "" if there is none.
  std::string out_of_order;
};

/// Proves that each stage computes each micro-batch once and on its rank, that each gradient is computed and used once,
/// that sends and receives match, and that no ranks wait for each other. Takes time linear in the cells.
/// Throws an error that names the first wrong cell and what to change.
PipelineProof check_pipeline(const PipelineTable& table);

/// What actions take, by stage. Times may be in any one unit; sends take no rank's time.
struct PipelineCosts {
  std::vector<double> forward, input_gradient, weight_gradient;
  double send = 0;  ///< from one rank to another
  /// What a micro-batch holds on a stage from its forward pass until its weight gradient, in any one unit, and the
  /// share of it that its input gradient does not yet free.
  std::vector<double> activations;
  double kept = 1;
};

/// Costs of a model that stages divide evenly: a rank's stages together take so long for a micro-batch, and hold one
/// unit of activations.
PipelineCosts even_pipeline_costs(const PipelineTable& table, double forward, double input_gradient,
                                  double weight_gradient, double send);

/// Why a rank is idle, in the costs' unit of time.
struct PipelineIdle {
  double warm_up = 0;    ///< before its first gradient
  double imbalance = 0;  ///< later, while another rank computes what it needs
  double link = 0;       ///< later, while what it needs is on its way
  double tail = 0;       ///< after its last forward pass

  double total() const { return warm_up + imbalance + link + tail; }
};

struct PipelineRankTime {
  double first = 0, last = 0;  ///< start of its first cell, end of its last
  double busy = 0;
  PipelineIdle idle;       ///< busy + idle.total() is the step's time
  double activations = 0;  ///< the most that it holds at a time
};

struct PipelineTimes {
  double step = 0;    ///< from the first start to the last end
  double bubble = 0;  ///< 1 - the busiest rank's work / the longest time between a rank's first start and its last end
  std::vector<PipelineRankTime> ranks;
  std::vector<std::vector<double>> start, end;  ///< by rank and cell
};

/// Simulates a checked table: each cell starts when its rank's previous one has ended and its operands have arrived.
PipelineTimes time_pipeline(const PipelineTable& table, const PipelineCosts& costs);

/// Costs of a rank's stages together for one micro-batch, for find_pipeline.
struct PipelineRankCosts {
  double forward = 1, input_gradient = 1, weight_gradient = 1, send = 0;
  double kept = 1;       ///< as PipelineCosts::kept
  double most_held = 0;  ///< activations of micro-batches that a rank may hold; 0: any number
};

struct FoundPipeline {
  std::string name;
  PipelineTable table;
  PipelineTimes times;
};

/// The fastest schedule within `most_held`, among those of pipeline_schedules(), with several numbers of stages, and
/// some that fill idle time by the given costs. Throws an error if no schedule holds so little.
FoundPipeline find_pipeline(const PipelineSizes& sizes, const PipelineRankCosts& costs);

/// The table as text, a column for each slot of equal length, in bands of at most `width` characters.
std::string pipeline_text(const PipelineTable& table, size_t width);
/// A drawing with the given times.
std::string pipeline_svg(const PipelineTable& table, const PipelineTimes& times);

}  // namespace v1
}  // namespace tessera
