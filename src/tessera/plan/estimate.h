#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/cost/collectives.h"
#include "tessera/cost/links.h"
#include "tessera/cost/machine_model.h"
#include "tessera/plan/choice.h"
#include "tessera/plan/search.h"

/// What candidates cost before they are compiled: bounds, which are certain, and estimates, which order the search.
namespace tessera::plan {

/// What is known of a model on one device.
struct Facts {
  double parameter_bytes = 0;  ///< as stored
  double optimizer_bytes = 0;  ///< states that only the optimizer has
  double gradient_bytes = 0;   ///< of the parameters that train, in the type in which they are reduced
  double gathered_bytes = 0;   ///< of all parameters in the type in which they are used
  double ideal_seconds = 0;    ///< of the products of a step on one device, at its peak rate
  int64_t batch = 0;           ///< samples of a step; 0: unknown

  /// Adds what a part of the model has, times `weight`; but for the batch, which all parts have in common.
  void add(const Facts& part, double weight);
};

/// Bounds on every program of the candidate: its states as they are stored, and the products' FLOPs, which splitting
/// does not reduce. Bytes on links are not bounded: one layout may move activations where another moves gradients.
Bounds bounds_of(const Choice& choice, const Facts& facts);

/// What the program of a candidate needs.
struct Measured {
  Choice choice;
  double seconds = 0;                      ///< of a step; 0: not simulated
  double compute_seconds = 0;              ///< of a rank, on average
  double kernel_seconds = 0;               ///< kernels of the rank with the most, not slowed by communication
  double bytes = 0;                        ///< at the peak
  std::map<std::string, double> received;  ///< bytes of a rank, by axes ("dp", "dp,tp")
};

/// Estimates by closed forms whose unknown numbers come from the candidates that have been compiled:
///
///     seconds = products at the peak rate · slowness + gradients and gathered parameters on their links
///             + what tensor and context parallelism move, in proportion to the samples of a rank, on their links
///     bytes   = states + gradients + parameters that are not gathered for each use, in the type of products
///             + activations, in proportion to the samples of a micro-batch on a rank
///
/// Numbers that are not known yet are assumed to be favourable, so that a candidate that may be good is tried. If
/// candidates with the same presets have been compiled, the estimate is scaled by the ratio of truth and estimate of
/// the one that differs least in its mesh and refinements.
class Estimator {
 public:
  Estimator(const Facts& facts, const MachineModel& machine) : facts_(facts), machine_(machine) {}

  /// For the candidates of another space: all that was learned but what belongs to single candidates of this one.
  Estimator for_others() const;

  const Facts& facts() const { return facts_; }
  Outcome of(const Choice& choice) const;
  /// Seconds of the kernels of the same program without buckets, if it was simulated, since buckets only add copies;
  /// else 0.
  double least_seconds(const Choice& choice) const;
  void learn(Measured measured);

 private:
  void learn_moved(const Measured& measured);
  double raw_seconds(const Choice& choice) const;
  double moved_seconds(const Choice& choice) const;
  double raw_bytes(const Choice& choice) const;
  double activations(const Choice& choice) const;
  double held_ratio(const std::string& from, const std::string& to) const;
  enum class Group : uint8_t { fsdp, dp_cp, batch, within, cp };  // of axes
  double seconds_on(Collective kind, const Choice& choice, Group group, double bytes) const;
  std::vector<cost::Level> levels_of(const Choice& choice, const std::vector<std::string>& axes) const;
  const Measured* nearest(const Choice& choice, bool timed) const;

  const Facts facts_;
  const MachineModel& machine_;
  std::map<std::string, std::vector<Measured>> known_;  ///< by presets
  std::map<size_t, double> kernel_seconds_;             ///< by Choice::kernels: without buckets
  std::optional<double> slowness_;                      ///< factor
  /// Bytes of all samples on one rank, by Choice::tensor and recomputation.
  std::map<std::pair<std::string, std::string>, double> activations_;
  std::map<std::string, double> tensor_bytes_;  ///< by Choice::tensor: of all samples, as an all-reduce has them
  std::optional<double> context_bytes_;         ///< of all samples, as an all-gather has them
  using MeshKey = std::array<int64_t, 6>;       // sizes of its axes, and a group
  mutable std::map<MeshKey, std::vector<cost::Level>> levels_;  ///< empty: the machine cannot have the mesh
};

}  // namespace tessera::plan
