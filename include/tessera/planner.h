#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/time.h"
#include "tessera/training.h"

/// Plans chosen by simulated time: the mesh, presets, micro-batches, recomputation, buckets and layouts of parameters
/// with which a model is fastest on a number of devices, within their memory (docs/planning.md).
///
///     tessera::PlannerSettings settings;
///     settings.devices = 64;
///     settings.predict.machine = tessera::load_machine("h100-sxm");
///     settings.training.emplace();
///     const tessera::PlannerReport report = tessera::find_plan(model, settings);
///     tessera::write_file("plan.json", report.best.front().plan.to_json());
namespace tessera {
inline namespace v1 {

/// What a plan decides.
enum class PlanDimension : uint8_t {
  mesh,           ///< factors of the number of devices: dp, fsdp, ep, cp and tp, tp being the nearest
  presets,        ///< of each axis, and with them how states are stored
  keep_gathered,  ///< whether stored parameters are gathered once a step, or for each use
  micro_batches,
  recompute,
  buckets,
  annotations,  ///< layouts of parameters, those of repeated blocks together
  pipelines,    ///< stages of layers, and their schedules
  streaming,    ///< states that are held in other memory, and loaded when they are needed
};

/// Whether find_plan() searches it.
bool is_searched(PlanDimension dimension);

enum class PlanObjective : uint8_t {
  time,    ///< of a step, among plans that fit into the memory
  memory,  ///< of a rank at its peak; among equal ones, the fastest
};

struct PlannerProgress {
  int64_t evaluated = 0, candidates = 0;
  std::string next;    ///< the candidate that is evaluated now
  double best_ms = 0;  ///< so far; 0: none
};

struct PlannerSettings {
  PredictSettings predict;  ///< the machine; its topology stays empty, since each mesh has its own
  int64_t devices = 1;
  double memory_limit = 0;  ///< bytes that a rank may need at its peak; 0: what the machine has
  PlanObjective objective = PlanObjective::time;
  /// After which the best plan so far is taken; candidates without annotations have 0.7 of it. One that would take more
  /// than a quarter of the time left is not begun. With a limit, programs with few of a model's blocks stand for the
  /// whole if it has twelve or more that are alike; up to half of the time is then kept to look at the whole program of
  /// the best plan. 0: all candidates are searched.
  double seconds = 0;
  size_t best = 5;          ///< plans in the report
  bool annotations = true;  ///< whether layouts of parameters are searched, too, beside those of presets
  std::optional<Training> training = std::nullopt;  ///< of the step to plan; nullopt: the model alone
  /// What all plans have in common: shapes, dtype, annotations. A dimension that it gives is fixed: mesh, presets,
  /// keep_gathered, micro_batches, recompute, bucket_bytes.
  Plan fixed;
  std::function<void(const PlannerProgress&)> observe = nullptr;
  /// Measures what the machine lacks for a program, as measure_missing() does, and returns whether there was anything.
  /// If given, the best plan counts only once all of its kernels are measured; until then the plan that is best now is
  /// measured, and all that were kept are simulated anew.
  std::function<bool(const Program&, PredictSettings&)> measure = nullptr;
};

/// A layout of a kind of parameters that the search tried with a plan.
struct TriedAnnotation {
  std::string plan;        ///< as PlannedOption::text
  std::string annotation;  ///< "layers.*.mlp.up.weight=[-,tp]"
  double gain_ms = 0;      ///< of the step; below 0: a loss
  double gain_bytes = 0;   ///< of the peak
  bool kept = false;
  std::string refused;  ///< why the plan cannot be compiled, or does not fit; empty: it does
};

/// One of the best plans.
struct PlannedOption {
  Plan plan;
  std::string text;  ///< "dp=4,tp=2, zero1+megatron, 2 micro-batches, recompute=full"
  Prediction prediction;
  int64_t peak_bytes = 0;  ///< of the rank that needs most
  /// For all but the best: what made the difference, and which change of the machine would make this plan the best: "if
  /// 'infiniband' were 1.4 times as fast".
  std::string decided;
  std::vector<std::string> wins;
  /// Of a model with many blocks: of how many blocks and micro-batches the largest program was from whose figures these
  /// follow, "4 of 80 blocks"; empty: they are those of the whole program.
  std::string extrapolated;
};

struct PlannerReport {
  /// The best first; never empty. For candidates with the same layouts, only the best one.
  std::vector<PlannedOption> best;
  double memory_limit = 0;  ///< bytes of a rank; 0: unknown, so there is none
  /// A bound on all plans: the FLOPs of the products at the machine's peak rate on all devices together.
  double bound_ms = 0;
  int64_t candidates = 0;
  int64_t evaluated = 0;                     ///< compiled; those that fit were simulated
  int64_t unfit = 0;                         ///< of these, those that need more than the limit
  int64_t too_large = 0;                     ///< candidates whose states alone are larger than the limit
  int64_t too_slow = 0;                      ///< candidates whose bound is above the best plan's time
  int64_t refused = 0;                       ///< that cannot be compiled or simulated
  int64_t left = 0;                          ///< that the search had no time for
  int64_t measured = 0;                      ///< of the plans that were kept
  std::string refusal;                       ///< the first one's message
  std::vector<TriedAnnotation> annotations;  ///< tried with the best plans, in turn
  std::vector<std::string> not_searched;     ///< dimensions and candidates, as text
};

/// Searches the candidates in the order of estimated times, and drops those that a bound excludes. Estimates improve
/// with each candidate that is compiled and simulated. Without a limit of time, the best candidate is that of an
/// exhaustive search. The best plans, as many as the report has, are then improved by annotations, as long as a change
/// of one makes them better. Throws user errors: if nothing fits, one that names the smallest peak and what would fit;
/// if the settings leave no candidate; if the model or the machine file is invalid.
PlannerReport find_plan(const Model& model, const PlannerSettings& settings);

/// Seconds that `tessera plan` gives a search with these settings, whose own limit does not count: 60, but 10 on up to
/// 64 devices if programs of few blocks can stand for the whole.
double usual_search_seconds(const Model& model, const PlannerSettings& settings);

/// The slowest links that a step crosses. They connect slices: groups of devices within the faster levels.
struct SlowLevel {
  std::string link;
  int64_t slice = 1;            ///< devices within the faster levels
  double tokens_per_slice = 0;  ///< of a step; samples, if the model has no inputs of tokens
  bool counts_tokens = false;
  double intensity = 0;     ///< FLOP/s of a slice over bytes/s out of it
  double needed = 0;        ///< tokens of a slice that hide the all-reduce of its gradients, of 32 bits
  int64_t least_batch = 0;  ///< samples of a step that has as many tokens
  bool operator==(const SlowLevel&) const = default;
  bool is_hidden() const { return tokens_per_slice >= needed; }
};

/// The arithmetic intensity of data parallelism over the slowest links that `devices` cross: the backward pass of a
/// product of D by F takes 8·tokens·D·F / FLOP/s, and its gradients' all-reduce 16·D·F / bytes/s, so that a slice needs
/// twice as many tokens as FLOP/s over bytes/s (as many, if gradients had 16 bits: Multislice training). Nullopt if all
/// devices are within the first level.
std::optional<SlowLevel> slow_level(const Model& model, const SymbolSizes& sizes, const MachineModel& machine,
                                    int64_t devices, DType compute);

}  // namespace v1
}  // namespace tessera
