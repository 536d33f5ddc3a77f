#include "tessera/runtime/process_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/bytes_text.h"
#include "tessera/base/checked.h"

namespace tessera::runtime {

// Returns the bytes that no rank before holds.
size_t ProcessMemory::take(const std::map<WeightForm, size_t>& own) {
  size_t fresh = 0;
  for (const auto& [form, bytes] : own)
    if (weights_.emplace(form, bytes).second) fresh += bytes;
  weights_bytes_ = checked_add(weights_bytes_, fresh, "the weights");
  return fresh;
}

void ProcessMemory::add(const RankState& rank, size_t arena) {
  const std::map<WeightForm, size_t> own = rank.weights().own_bytes();
  size_t held = rank.changing_bytes();
  changing_ = checked_add(changing_, held, "the states");
  for (const auto& [form, bytes] : own) held += bytes;
  arenas_ = checked_add(arenas_, arena, "the ranks' arenas");
  // Ranks that need what another one makes wait for it. The others may wait until no other one packs (LoadingRoom).
  if (take(own) == 0) return;
  const LoadPeak& peak = rank.weights().load_peak();
  const auto beside = [&](size_t bytes) { return bytes - std::min(bytes, held); };
  const size_t between = beside(peak.between);
  loading_ = std::max(loading_ + between, between_ + beside(peak.own));
  between_ += between;
}

void ProcessMemory::add_weights(const RankWeights& weights) {
  take(weights.own_bytes());
}

size_t ProcessMemory::peak() const {
  const size_t running = checked_add(arenas_, beside_, "arenas and outputs");
  return checked_add(states(), std::max(running, loading_), "the ranks");
}

void ProcessMemory::add_to(std::vector<device::NamedBytes>& pieces) const {
  const auto largest = std::max_element(weights_.begin(), weights_.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest != weights_.end())
    pieces.push_back({fmt::format("all weights ('{}' has {})", largest->first.part.name,
                                  bytes_text(static_cast<double>(largest->second))),
                      weights_bytes_});
  if (changing_ > 0) pieces.push_back({"states that change", changing_});
  if (loading_ > 0) pieces.push_back({"what weights are packed from and in", loading_});
}

}  // namespace tessera::runtime
