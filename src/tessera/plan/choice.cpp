#include "tessera/plan/choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"

namespace tessera::plan {
namespace {

/// Sizes of the axes, the farthest first.
struct Sizes {
  int64_t dp = 1, fsdp = 1, ep = 1, cp = 1, tp = 1;
};

struct Presets {
  std::string text;
  int64_t parameter_shards = 1, optimizer_shards = 1;  // by storage
};

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= number; ++d)
    if (number % d == 0) all.push_back(d);
  return all;
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "+" + b;
}

std::vector<Sizes> factorizations(const Space& space) {
  std::vector<Sizes> all;
  for (const int64_t tp : divisors(space.devices))
    for (const int64_t cp : divisors(space.devices / tp)) {
      if (cp > std::max<int64_t>(1, space.context)) break;
      const int64_t others = space.devices / tp / cp;
      for (const int64_t ep : space.has_experts ? divisors(others) : std::vector<int64_t>{1})
        for (const int64_t fsdp : divisors(others / ep)) all.push_back({others / ep / fsdp, fsdp, ep, cp, tp});
    }
  return all;
}

// With one axis for the batch, "dp" replicates states (or splits those of the optimizer), and "fsdp" splits all states.
// With both axes, what "fsdp" splits may also be split over "dp".
std::vector<Presets> data_presets(const Sizes& sizes) {
  if (sizes.dp == 1 && sizes.fsdp == 1) return {{}};
  if (sizes.fsdp == 1) return {{"dp", 1, 1}, {"zero1", 1, sizes.dp}};
  if (sizes.dp == 1) return {{"fsdp", sizes.fsdp, sizes.fsdp}};
  return {{"dp+fsdp", sizes.fsdp, sizes.fsdp},
          {"zero1:dp+fsdp", sizes.fsdp, sizes.fsdp * sizes.dp},
          {"dp+zero1:fsdp", 1, sizes.fsdp}};
}

std::vector<std::string> tensor_presets(const Sizes& sizes) {
  if (sizes.tp == 1) return {""};
  return {"megatron", "megatron+sequence", "megatron+features", "sequence", "features"};
}

std::string context_preset(const Sizes& sizes) {
  return sizes.cp > 1 ? "context" : "";
}

// Experts have an axis of their own, or share one with the batch.
std::vector<std::string> expert_presets(const Sizes& sizes, bool has_experts) {
  if (!has_experts) return {""};
  if (sizes.ep > 1) return {"expert"};
  std::vector<std::string> all = {""};
  if (sizes.dp > 1) all.emplace_back("expert:dp");
  if (sizes.fsdp > 1) all.emplace_back("expert:fsdp");
  return all;
}

Mesh mesh_of(const Sizes& sizes) {
  std::vector<MeshAxis> axes;
  const std::pair<const char*, int64_t> all[] = {
      {"dp", sizes.dp}, {"fsdp", sizes.fsdp}, {"ep", sizes.ep}, {"cp", sizes.cp}, {"tp", sizes.tp}};
  for (const auto& [name, size] : all)
    if (size > 1) axes.push_back({name, size});
  return Mesh(std::move(axes));
}

// Layouts: mesh, presets, and what they store where.
std::vector<Choice> layouts(const Space& space) {
  std::vector<Choice> all;
  const bool has_annotations =
      !space.fixed.annotations.empty() || !space.fixed.places.empty() || !space.fixed.storage.empty();
  for (const Sizes& sizes : factorizations(space))
    for (const Presets& data : data_presets(sizes))
      for (const std::string& tensor : tensor_presets(sizes))
        for (const std::string& expert : expert_presets(sizes, space.has_experts)) {
          Choice choice;
          choice.mesh = mesh_of(sizes);
          choice.tensor = joined(tensor, expert);
          choice.presets = joined(joined(data.text, context_preset(sizes)), choice.tensor);
          if (choice.presets.empty()) choice.presets = "none";
          choice.stores_parameters = data.parameter_shards > 1;
          const int64_t within =
              sizes.tp * sizes.ep * (expert.find(':') != std::string::npos ? sizes.dp * sizes.fsdp : 1);
          choice.parameter_shards = has_annotations ? space.devices : within * data.parameter_shards;
          choice.optimizer_shards = has_annotations ? space.devices : within * data.optimizer_shards;
          all.push_back(std::move(choice));
        }
  return all;
}

// Layouts with the fixed mesh, the fixed presets, or both, which may be others than those of layouts().
std::vector<Choice> fixed_layouts(const Space& space) {
  const Plan& fixed = space.fixed;
  std::vector<Choice> all;
  for (Choice& choice : layouts(space)) {
    if (!fixed.mesh.empty() && choice.mesh != Mesh::parse(fixed.mesh)) continue;
    if (!fixed.presets.empty()) {
      const bool known =
          std::any_of(all.begin(), all.end(), [&](const Choice& each) { return each.mesh == choice.mesh; });
      if (known) continue;
      choice.presets = fixed.presets;
      choice.tensor.clear();
      choice.stores_parameters = false;  // unknown
      choice.parameter_shards = choice.optimizer_shards = space.devices;
    }
    all.push_back(std::move(choice));
  }
  if (!all.empty() || fixed.mesh.empty()) return all;
  Choice given;
  given.mesh = Mesh::parse(fixed.mesh);
  if (given.mesh.size() != space.devices)
    fail("plan", "the mesh {} has {}, but there are {}; make both equal", fixed.mesh,
         counted(given.mesh.size(), "rank"), counted(space.devices, "device"));
  if (fixed.presets.empty())
    fail("plan",
         "the mesh {} is not among those that are searched, whose axes are dp, fsdp, ep, cp and tp, in this order and "
         "each "
         "of more than one rank; to search the rest with this mesh, give `presets`, too",
         fixed.mesh);
  given.presets = fixed.presets;
  given.parameter_shards = given.optimizer_shards = space.devices;
  return {given};
}

std::vector<int> micro_batches_of(const Space& space, const Choice& layout) {
  if (!space.trains) return {1};
  if (space.fixed.micro_batches > 0) return {space.fixed.micro_batches};
  std::vector<int> all;
  for (int64_t parts : divisors(space.batch))
    // A part with fewer samples than ranks leaves some of them idle.
    if (parts == 1 || space.batch / parts >= layout.data_ranks()) all.push_back(static_cast<int>(parts));
  return all;
}

std::vector<std::string> recomputations_of(const Space& space) {
  if (!space.trains) return {space.fixed.recompute};
  if (!space.fixed.recompute.empty()) return {space.fixed.recompute};
  return {"none", "selective", "full"};
}

std::vector<std::optional<int64_t>> buckets_of(const Space& space) {
  if (space.fixed.bucket_bytes) return {space.fixed.bucket_bytes};
  if (space.devices == 1) return {std::nullopt};
  constexpr int64_t kMiB = 1 << 20;
  return {0, std::nullopt, 4 * kMiB, 32 * kMiB};  // the first one bounds the others
}

std::vector<bool> gathers_of(const Space& space, const Choice& layout) {
  if (!layout.stores_parameters || !space.fixed.keep_gathered.empty()) return {false};
  return {false, true};
}

}  // namespace

int64_t Choice::size_of(std::string_view axis) const {
  const std::optional<int> at = mesh.find(axis);
  return at ? mesh.axes()[static_cast<size_t>(*at)].size : 1;
}

std::string Choice::str() const {
  std::string text = mesh.size() == 1 ? "one rank" : mesh.str();
  if (presets != "none") text += ", " + presets;
  if (keeps_gathered) text += ", keep-gathered=*";
  if (micro_batches > 1) text += fmt::format(", {} micro-batches", micro_batches);
  if (!recompute.empty() && recompute != "none") text += ", recompute=" + recompute;
  if (bucket_bytes) text += fmt::format(", bucket-bytes={}", *bucket_bytes);
  for (const auto& [pattern, layout] : annotations) text += fmt::format(", {}={}", pattern, layout);
  return text;
}

Plan Choice::over(const Plan& fixed) const {
  Plan made = fixed;
  made.mesh = mesh.str();
  made.presets = presets;
  if (keeps_gathered) made.keep_gathered = {"*"};
  made.micro_batches = micro_batches > 1 || fixed.micro_batches > 0 ? micro_batches : 0;
  made.recompute = recompute;
  made.bucket_bytes = bucket_bytes;
  for (const auto& [pattern, layout] : annotations) made.annotations.push_back({pattern + "=" + layout});
  return made;
}

std::vector<Choice> choices(const Space& space) {
  if (space.devices < 1) fail("plan", "there are {}; give at least 1", counted(space.devices, "device"));
  std::vector<Choice> all;
  // Refinements vary slowest, so that of equal candidates the simplest comes first.
  const std::vector<Choice> layouts = fixed_layouts(space);
  for (const std::optional<int64_t>& bucket : buckets_of(space)) {
    size_t kernels = 0;
    for (const std::string& recompute : recomputations_of(space))
      for (size_t l = 0; l < layouts.size(); ++l)
        for (const int parts : micro_batches_of(space, layouts[l]))
          for (const bool keeps : gathers_of(space, layouts[l])) {
            Choice choice = layouts[l];
            choice.layout = 2 * l + (keeps ? 1 : 0);
            choice.kernels = kernels++;
            choice.keeps_gathered = keeps;
            choice.micro_batches = parts;
            choice.recompute = recompute;
            choice.bucket_bytes = bucket;
            all.push_back(std::move(choice));
          }
  }
  return all;
}

}  // namespace tessera::plan
