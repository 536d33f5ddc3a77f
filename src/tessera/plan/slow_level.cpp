#include <cmath>

#include "tessera/plan/samples.h"
#include "tessera/planner.h"

namespace tessera {

namespace plan {

std::pair<int64_t, std::optional<int64_t>> samples_and_tokens(const Model& model, const SymbolSizes& sizes) {
  for (const TensorInfo& input : model.with_sizes(sizes).inputs()) {
    if (input.shape.empty()) continue;
    const auto extent = [&](size_t dim) { return std::atoll(input.shape[dim].c_str()); };
    const int64_t samples = std::max<int64_t>(1, extent(0));
    if (!is_integer(input.dtype) || input.shape.size() < 2) return {samples, std::nullopt};
    return {samples, samples * std::max<int64_t>(1, extent(1))};
  }
  return {1, std::nullopt};
}

}  // namespace plan

inline namespace v1 {

std::optional<SlowLevel> slow_level(const Model& model, const SymbolSizes& sizes, const MachineModel& machine,
                                    int64_t devices, DType compute) {
  int64_t within = 1, reached = 1;  // devices below the slowest level, and up to it
  const MachineModel::Link* slow = nullptr;
  for (const MachineModel::Link& link : machine.links) {
    if (reached >= devices) break;
    slow = &link;
    within = reached;
    reached = link.size == 0 ? devices : reached * link.size;
  }
  auto product = machine.products.find(compute);
  if (product == machine.products.end()) product = machine.products.find(DType::float32);
  if (!slow || within == 1 || product == machine.products.end()) return std::nullopt;
  const auto [samples, tokens] = plan::samples_and_tokens(model, sizes);
  SlowLevel level;
  level.link = slow->name;
  level.slice = within;
  level.counts_tokens = tokens.has_value();
  const auto count = static_cast<double>(tokens.value_or(samples));
  const double slices = static_cast<double>(devices) / static_cast<double>(within);
  level.tokens_per_slice = count / slices;
  level.intensity = product->second.flops * static_cast<double>(within) / slow->bandwidth;
  level.needed = 2 * level.intensity;
  level.least_batch = static_cast<int64_t>(std::ceil(level.needed * slices / (count / static_cast<double>(samples))));
  return level;
}

}  // namespace v1
}  // namespace tessera
