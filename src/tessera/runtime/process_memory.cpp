#include "tessera/runtime/process_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/bytes_text.h"
#include "tessera/base/checked.h"

namespace tessera::runtime {

Dims bound_dims(const Shape& shape, const Symbols& symbols) {
  Dims dims;
  for (const Expr& extent : shape) dims.push_back(extent.evaluate(symbols));
  return dims;
}

std::map<std::string, size_t> output_bytes(const RankPrograms& programs, const Symbols& symbols) {
  std::map<std::string, size_t> outputs;
  const auto& ports = programs.programs.front()->outputs;
  for (size_t i = 0; i < ports.size(); ++i) {
    const RankPrograms::Output whole = programs.output(i);
    const Dims dims = bound_dims(*whole.placement->global.shape, symbols);
    require_countable(whole.value->dtype(), dims, ports[i].name);
    outputs[ports[i].name] = bytes_of(whole.value->dtype(), count_of(dims));
  }
  return outputs;
}

// Returns the bytes of weights that no earlier rank holds.
size_t ProcessMemory::take(const Need& need) {
  size_t fresh = 0;
  for (const auto& [of, bytes] : need.weights) {
    WeightForm form = of;
    if (!need.shares) form.form += fmt::format(" of rank {}", need.rank);
    if (weights_.emplace(std::move(form), bytes).second) fresh += bytes;
  }
  weights_bytes_ = checked_add(weights_bytes_, fresh, "the weights");
  return fresh;
}

ProcessMemory::Need ProcessMemory::need_of(const RankState& rank, size_t arena) {
  return {.rank = rank.rank(),
          .shares = rank.device().uses_host_memory(),
          .weights = rank.weights().own_bytes(),
          .states = rank.states().bytes_by_name(),
          .constants = rank.constant_bytes(),
          .arena = arena,
          .load = rank.weights().load_peak()};
}

void ProcessMemory::add(const Need& need) {
  size_t held = need.constants;
  changing_ = checked_add(changing_, need.constants, "the states");
  for (const auto& [name, bytes] : need.states) {
    size_t& known = states_[{need.rank, name}];
    changing_ = checked_add(changing_, bytes - std::min(known, bytes), "the states");
    known = std::max(known, bytes);
    held += bytes;
  }
  for (const auto& [form, bytes] : need.weights) held += bytes;
  add_running(need.arena);
  // A rank that needs weights that another rank makes waits for them. Other ranks may wait until no other one packs
  // (LoadingRoom).
  if (take(need) == 0) return;
  const auto beside = [&](size_t bytes) { return bytes - std::min(bytes, held); };
  const size_t between = beside(need.load.between);
  loading_ = std::max(loading_ + between, between_ + beside(need.load.own));
  between_ += between;
}

void ProcessMemory::add_weights(const RankState& rank) {
  take(need_of(rank, 0));
}

void ProcessMemory::add_outputs(const std::map<std::string, size_t>& outputs, size_t copies) {
  for (const auto& [name, bytes] : outputs) {
    outputs_[name] += bytes;
    add_running(bytes);
  }
  copies_ = checked_add(copies_, copies, "the copies");
  add_running(copies);
}

void ProcessMemory::add_running(size_t bytes) {
  running_ = checked_add(running_, bytes, "arenas and outputs");
}

size_t ProcessMemory::peak() const {
  return checked_add(states(), std::max(running_, loading_), "the ranks");
}

void ProcessMemory::add_to(std::vector<device::NamedBytes>& pieces) const {
  for (const auto& [name, bytes] : outputs_) pieces.push_back({fmt::format("the output '{}'", name), bytes});
  if (copies_ > 0) pieces.push_back({kCopiesToSave, copies_});
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
