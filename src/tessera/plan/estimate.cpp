#include "tessera/plan/estimate.h"

#include <algorithm>
#include <cmath>

#include "tessera/cost/collectives.h"
#include "tessera/error.h"

namespace tessera::plan {
namespace {

using Kind = Collective;

// Factors on computation and on held activations, as is usual for transformers.
struct Recomputed {
  double computing = 1, held = 1;
};
Recomputed recomputed(const std::string& recompute) {
  if (recompute == "selective") return {1.05, 0.6};
  if (recompute == "full") return {1.3, 0.25};
  return {};
}

double shards_within_layers(const Choice& choice) {
  return static_cast<double>(choice.size_of("tp") * choice.size_of("ep"));
}

// How much longer than its share of the products the busiest rank takes, since it has whole samples.
double unevenness(const Choice& choice, const Facts& facts) {
  const int64_t samples = facts.batch / choice.micro_batches, ranks = choice.data_ranks();
  if (samples <= 0) return 1;
  return static_cast<double>((samples + ranks - 1) / ranks * ranks) / static_cast<double>(samples);
}

// Of the products, at the peak rate.
double computing(const Choice& choice, const Facts& facts) {
  return facts.ideal_seconds / static_cast<double>(choice.mesh.size()) * recomputed(choice.recompute).computing *
         unevenness(choice, facts);
}

double states_of(const Choice& choice, const Facts& facts) {
  return facts.parameter_bytes / static_cast<double>(choice.parameter_shards) +
         facts.optimizer_bytes / static_cast<double>(choice.optimizer_shards);
}

// The share of a step's activations that a rank holds at once.
double held_share(const Choice& choice) {
  return recomputed(choice.recompute).held /
         (static_cast<double>(choice.token_ranks()) * shards_within_layers(choice) * choice.micro_batches);
}

int distance(const Choice& a, const Choice& b) {
  return 4 * static_cast<int>(a.recompute != b.recompute) + 2 * static_cast<int>(a.bucket_bytes != b.bucket_bytes) +
         std::abs(a.micro_batches - b.micro_batches);
}

}  // namespace

Bounds bounds_of(const Choice& choice, const Facts& facts) {
  return {facts.ideal_seconds / static_cast<double>(choice.mesh.size()), states_of(choice, facts)};
}

Estimator Estimator::for_others() const {
  Estimator others = *this;
  others.known_.clear();
  others.kernel_seconds_.clear();
  return others;
}

const Topology* Estimator::topology_of(const Mesh& mesh) const {
  const auto [known, added] = topologies_.try_emplace(mesh.str());
  if (added) try {
      known->second = machine_.topology(mesh);
    } catch (const Error&) {  // evaluating the candidate says why
    }
  return known->second ? &*known->second : nullptr;
}

double Estimator::seconds_on(Kind kind, const Choice& choice, const std::vector<std::string>& axes,
                             double bytes) const {
  std::vector<AxisRef> group;
  for (const std::string& axis : axes)
    if (const int64_t size = choice.size_of(axis); size > 1) group.push_back({axis, 1, size});
  const Topology* topology = topology_of(choice.mesh);
  if (group.empty() || !topology || bytes <= 0) return 0;
  std::vector<cost::Level> levels;
  for (const cost::GroupLevel& level : cost::levels_of(group, choice.mesh, *topology)) levels.push_back(level.cost);
  if (levels.empty()) return 0;
  return std::min(cost::flat_time(kind, levels, bytes), cost::hierarchical_time(kind, levels, bytes));
}

double Estimator::moved_seconds(const Choice& choice) const {
  const double within = shards_within_layers(choice);
  const double gradients = facts_.gradient_bytes / within, gathered = facts_.gathered_bytes / within;
  double seconds = 0;
  if (choice.stores_parameters) {
    const double times = choice.micro_batches, uses = choice.keeps_gathered ? 1 : 2 * times;
    const auto shards = static_cast<double>(choice.size_of("fsdp"));
    seconds += uses * seconds_on(Kind::all_gather, choice, {"fsdp"}, gathered) +
               times * seconds_on(Kind::reduce_scatter, choice, {"fsdp"}, gradients) +
               seconds_on(Kind::all_reduce, choice, {"dp", "cp"}, gradients / shards);
  } else {
    seconds += seconds_on(Kind::all_reduce, choice, {"dp", "fsdp", "cp"}, gradients);
  }
  if (const auto moved = tensor_bytes_.find(choice.tensor); moved != tensor_bytes_.end())
    seconds +=
        seconds_on(Kind::all_reduce, choice, {"ep", "tp"}, moved->second / static_cast<double>(choice.token_ranks()));
  if (context_bytes_)
    seconds += seconds_on(Kind::all_gather, choice, {"cp"},
                          *context_bytes_ / static_cast<double>(choice.data_ranks()) / within);
  return seconds;
}

double Estimator::raw_seconds(const Choice& choice) const {
  return computing(choice, facts_) * slowness_.value_or(1) + moved_seconds(choice);
}

double Estimator::raw_bytes(const Choice& choice) const {
  return states_of(choice, facts_) + activations_.value_or(0) * held_share(choice);
}

const Measured* Estimator::nearest(const Choice& choice, bool timed) const {
  const Measured* best = nullptr;
  const auto alike = known_.find(choice.layout);
  if (alike == known_.end()) return nullptr;
  for (const Measured& each : alike->second)
    if (!timed || each.seconds > 0)
      if (!best || distance(each.choice, choice) < distance(best->choice, choice)) best = &each;
  return best;
}

Outcome Estimator::of(const Choice& choice) const {
  Outcome estimate{raw_seconds(choice), raw_bytes(choice), {}};
  if (const Measured* like = nearest(choice, true)) {
    const double expected = raw_seconds(like->choice);
    if (expected > 0) estimate.seconds *= like->seconds / expected;
  }
  if (const Measured* like = nearest(choice, false)) {
    const double held = std::max(0.0, like->bytes - states_of(like->choice, facts_)) / held_share(like->choice);
    estimate.bytes = states_of(choice, facts_) + held * held_share(choice);
  }
  return estimate;
}

double Estimator::least_seconds(const Choice& choice) const {
  const auto known = kernel_seconds_.find(choice.kernels);
  return known == kernel_seconds_.end() ? 0 : known->second;
}

void Estimator::learn_moved(const Measured& measured) {
  const Choice& choice = measured.choice;
  double received = 0;
  for (const auto& [axes, bytes] : measured.received)
    if (axes == "tp" || axes == "ep" || axes == "ep,tp") received += bytes;
  const double within = shards_within_layers(choice);
  if (within > 1 && !choice.tensor.empty()) {
    const double moved = received * within / (2 * (within - 1)) * static_cast<double>(choice.token_ranks());
    const auto [known, added] = tensor_bytes_.try_emplace(choice.tensor, moved);
    known->second = std::min(known->second, moved);
  }
  // Gradients cross the axis, too.
  if (const auto ranks = static_cast<double>(choice.size_of("cp")); ranks > 1) {
    const auto over = measured.received.find("cp");
    const double all = over == measured.received.end() ? 0 : over->second * ranks / (ranks - 1);
    const double gradients = choice.data_ranks() == 1 ? 2 * facts_.gradient_bytes / within : 0;
    const double moved = std::max(0.0, all - gradients) * static_cast<double>(choice.data_ranks()) * within;
    context_bytes_ = std::min(moved, context_bytes_.value_or(moved));
  }
}

void Estimator::learn(Measured measured) {
  const Choice& choice = measured.choice;
  const double held = std::max(0.0, measured.bytes - states_of(choice, facts_)) / held_share(choice);
  activations_ = std::min(held, activations_.value_or(held));
  const double ideal = computing(choice, facts_);
  if (measured.compute_seconds > 0 && ideal > 0) {
    const double slowness = measured.compute_seconds / ideal;
    slowness_ = std::min(slowness, slowness_.value_or(slowness));
  }
  learn_moved(measured);
  if (measured.seconds > 0 && choice.bucket_bytes == 0) kernel_seconds_[choice.kernels] = measured.kernel_seconds;
  known_[choice.layout].push_back(std::move(measured));
}

}  // namespace tessera::plan
