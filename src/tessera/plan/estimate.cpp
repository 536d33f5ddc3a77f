#include "tessera/plan/estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
  if (recompute == "full") return {1.3, 0.1};
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

// All but activations: states, gradients, and parameters that a rank has gathered, or rounded for its products.
double lasting_bytes(const Choice& choice, const Facts& facts) {
  const double within = shards_within_layers(choice);
  const auto parameters = static_cast<double>(choice.parameter_shards),
             optimizer = static_cast<double>(choice.optimizer_shards);
  const double gradients = facts.gradient_bytes / (choice.micro_batches > 1 ? parameters : optimizer);
  const bool rounds = facts.gathered_bytes < facts.parameter_bytes;
  const bool whole = choice.stores_parameters ? choice.keeps_gathered : rounds;
  return states_of(choice, facts) + gradients + (whole ? facts.gathered_bytes / within : 0);
}

// The share of a micro-batch that a rank has.
double share_of_batch(const Choice& choice) {
  return 1 / (static_cast<double>(choice.token_ranks()) * shards_within_layers(choice) * choice.micro_batches);
}

double difference_of(double a, double b) {
  return std::abs(std::log2(a / b));
}

double distance(const Choice& a, const Choice& b) {
  double sum = 4 * static_cast<int>(a.recompute != b.recompute) +
               2 * static_cast<int>(a.bucket_bytes != b.bucket_bytes) + difference_of(a.micro_batches, b.micro_batches);
  for (const char* axis : {"dp", "fsdp", "ep", "cp", "tp"})
    sum += difference_of(static_cast<double>(a.size_of(axis)), static_cast<double>(b.size_of(axis)));
  return sum;
}

// Candidates whose presets are equal.
std::string family_of(const Choice& choice) {
  return choice.presets + (choice.keeps_gathered ? "*" : "");
}

}  // namespace

void Facts::add(const Facts& part, double weight) {
  parameter_bytes += weight * part.parameter_bytes;
  optimizer_bytes += weight * part.optimizer_bytes;
  gradient_bytes += weight * part.gradient_bytes;
  gathered_bytes += weight * part.gathered_bytes;
  ideal_seconds += weight * part.ideal_seconds;
}

Bounds bounds_of(const Choice& choice, const Facts& facts) {
  return {facts.ideal_seconds / static_cast<double>(choice.mesh.size()), states_of(choice, facts)};
}

Estimator Estimator::for_others() const {
  Estimator others = *this;
  others.known_.clear();
  others.kernel_seconds_.clear();
  return others;
}

std::vector<cost::Level> Estimator::levels_of(const Choice& choice, const std::vector<std::string>& axes) const {
  std::vector<AxisRef> group;
  for (const std::string& axis : axes)
    if (const int64_t size = choice.size_of(axis); size > 1) group.push_back({axis, 1, size});
  std::vector<cost::Level> levels;
  if (group.empty()) return levels;
  try {
    const Topology topology = machine_.topology(choice.mesh);
    for (const cost::GroupLevel& level : cost::levels_of(group, choice.mesh, topology)) levels.push_back(level.cost);
  } catch (const Error&) {  // evaluating the candidate says why
  }
  return levels;
}

double Estimator::seconds_on(Kind kind, const Choice& choice, Group group, double bytes) const {
  static const std::vector<std::string> axes[] = {{"fsdp"}, {"dp", "cp"}, {"dp", "fsdp", "cp"}, {"ep", "tp"}, {"cp"}};
  if (bytes <= 0) return 0;
  const MeshKey key{choice.size_of("dp"), choice.size_of("fsdp"), choice.size_of("ep"),
                    choice.size_of("cp"), choice.size_of("tp"),   static_cast<int64_t>(group)};
  auto known = levels_.find(key);
  if (known == levels_.end()) known = levels_.emplace(key, levels_of(choice, axes[static_cast<size_t>(group)])).first;
  const std::vector<cost::Level>& levels = known->second;
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
    seconds += uses * seconds_on(Kind::all_gather, choice, Group::fsdp, gathered) +
               times * seconds_on(Kind::reduce_scatter, choice, Group::fsdp, gradients) +
               seconds_on(Kind::all_reduce, choice, Group::dp_cp, gradients / shards);
  } else {
    seconds += seconds_on(Kind::all_reduce, choice, Group::batch, gradients);
  }
  if (const auto moved = tensor_bytes_.find(choice.tensor); moved != tensor_bytes_.end())
    seconds +=
        seconds_on(Kind::all_reduce, choice, Group::within, moved->second / static_cast<double>(choice.token_ranks()));
  if (context_bytes_)
    seconds += seconds_on(Kind::all_gather, choice, Group::cp,
                          *context_bytes_ / static_cast<double>(choice.data_ranks()) / within);
  return seconds;
}

double Estimator::raw_seconds(const Choice& choice) const {
  return computing(choice, facts_) * slowness_.value_or(1) + moved_seconds(choice);
}

// With what is known of the same presets within layers and another recomputation, if of none with this one.
double Estimator::activations(const Choice& choice) const {
  double least = std::numeric_limits<double>::infinity(), any = least;
  for (const auto& [key, bytes] : activations_) {
    const auto& [tensor, recompute] = key;
    const double scaled = bytes * held_ratio(recompute, choice.recompute);
    if (tensor == choice.tensor && recompute == choice.recompute) return bytes;
    if (tensor == choice.tensor) least = std::min(least, scaled);
    any = std::min(any, scaled);
  }
  return std::isfinite(least) ? least : std::isfinite(any) ? any : 0;
}

// Of what is held with one recomputation and another: as any presets have shown, or as is usual.
double Estimator::held_ratio(const std::string& from, const std::string& to) const {
  for (const auto& [key, bytes] : activations_)
    if (const auto other = activations_.find({key.first, to}); key.second == from && other != activations_.end())
      if (bytes > 0) return other->second / bytes;
  return recomputed(to).held / recomputed(from).held;
}

double Estimator::raw_bytes(const Choice& choice) const {
  return lasting_bytes(choice, facts_) + activations(choice) * share_of_batch(choice);
}

const Measured* Estimator::nearest(const Choice& choice, bool timed) const {
  const Measured* best = nullptr;
  const auto alike = known_.find(family_of(choice));
  if (alike == known_.end()) return nullptr;
  double least = 0;
  for (const Measured& each : alike->second) {
    if (timed && each.seconds <= 0) continue;
    if (const double far = distance(each.choice, choice); !best || far < least) best = &each, least = far;
  }
  return best;
}

Outcome Estimator::of(const Choice& choice) const {
  Outcome estimate{raw_seconds(choice), raw_bytes(choice), {}};
  if (const Measured* like = nearest(choice, true)) {
    const double expected = raw_seconds(like->choice);
    if (expected > 0) estimate.seconds *= like->seconds / expected;
  }
  // What the closed form has left out is assumed to be split within layers only.
  if (const Measured* like = nearest(choice, false))
    estimate.bytes = std::max(states_of(choice, facts_), estimate.bytes + (like->bytes - raw_bytes(like->choice)) *
                                                                              shards_within_layers(like->choice) /
                                                                              shards_within_layers(choice));
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
  const double held = std::max(0.0, measured.bytes - lasting_bytes(choice, facts_)) / share_of_batch(choice);
  const auto [known_held, added] = activations_.try_emplace({choice.tensor, choice.recompute}, held);
  known_held->second = std::min(known_held->second, held);
  const double ideal = computing(choice, facts_);
  if (measured.compute_seconds > 0 && ideal > 0) {
    const double slowness = measured.compute_seconds / ideal;
    slowness_ = std::min(slowness, slowness_.value_or(slowness));
  }
  learn_moved(measured);
  if (measured.seconds > 0 && choice.bucket_bytes == 0) kernel_seconds_[choice.kernels] = measured.kernel_seconds;
  known_[family_of(choice)].push_back(std::move(measured));
}

}  // namespace tessera::plan
