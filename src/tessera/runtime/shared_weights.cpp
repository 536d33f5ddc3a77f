#include "tessera/runtime/shared_weights.h"

#include <fmt/format.h>

namespace tessera::runtime {

std::string WeightPart::str() const {
  return fmt::format("{} {} {:x} {}", name, type, origin, where);
}

template <typename T>
LoadingRoom::Scope SharedWeights::turn(std::set<T>& taken, const T& what) {
  room_.wait([&] { return !taken.contains(what); }, [&] { taken.insert(what); });
  return {&taken, [this, what](std::set<T>* of) { room_.change([&] { of->erase(what); }); }};
}

LoadingRoom::Scope SharedWeights::turn_of(const std::string& what) {
  return turn(turns_, what);
}

Tensor SharedWeights::get(const WeightForm& form, const std::function<Tensor()>& make) {
  const auto alone = turn(being_made_, form);
  if (Tensor there = find(form); there.owner) return there;
  Tensor made = make();
  put(form, made);
  return made;
}

Tensor SharedWeights::find(const WeightForm& form) const {
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(form);
  if (known == entries_.end()) return {};
  Tensor tensor = known->second.tensor;
  tensor.owner = known->second.owner.lock();
  return tensor.owner ? tensor : Tensor();
}

void SharedWeights::put(const WeightForm& form, const Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[form];
  entry = {tensor, tensor.owner};
  entry.tensor.owner = nullptr;
}

bool SharedWeights::holds_any(const WeightPart& part) const {
  const std::lock_guard lock(mutex_);
  for (auto at = entries_.lower_bound({part, kPlainForm}); at != entries_.end() && at->first.part == part; ++at)
    if (!at->second.owner.expired()) return true;
  return false;
}

}  // namespace tessera::runtime
