#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

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
///     bytes   = states + activations, in proportion to the samples of a micro-batch on a rank
///
/// Numbers that are not known yet are assumed to be favourable, so that a candidate that may be good is tried. If the
/// layouts of a candidate have been compiled with other refinements, its estimate is scaled by their ratio of truth and
/// estimate.
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
  double seconds_on(Collective kind, const Choice& choice, const std::vector<std::string>& axes, double bytes) const;
  const Topology* topology_of(const Mesh& mesh) const;
  const Measured* nearest(const Choice& choice, bool timed) const;

  const Facts facts_;
  const MachineModel& machine_;
  std::map<size_t, std::vector<Measured>> known_;  ///< by layout
  std::map<size_t, double> kernel_seconds_;        ///< by Choice::kernels: without buckets
  std::optional<double> slowness_, activations_;   ///< factor; bytes of all samples on one rank
  std::map<std::string, double> tensor_bytes_;     ///< by Choice::tensor: of all samples, as an all-reduce has them
  std::optional<double> context_bytes_;            ///< of all samples, as an all-gather has them
  mutable std::map<std::string, std::optional<Topology>> topologies_;  ///< by mesh; nullopt: the machine cannot have it
};

}  // namespace tessera::plan
