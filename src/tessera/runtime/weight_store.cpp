#include "tessera/runtime/weight_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::runtime {

std::string WeightPart::str() const {
  return fmt::format("{} {} {:x} {}", name, type, origin, where);
}

Tensor WeightStore::held(const Entry& entry) {
  Tensor tensor = entry.tensor;
  tensor.owner = entry.owner.lock();
  return tensor.owner ? tensor : Tensor();
}

std::shared_ptr<WeightStore::Entry> WeightStore::entry(const WeightForm& form) {
  const std::lock_guard lock(mutex_);
  auto& entry = entries_[form];
  if (!entry) entry = std::make_shared<Entry>();
  return entry;
}

Tensor WeightStore::get(const WeightForm& form, const std::function<Tensor()>& make) {
  const auto of = entry(form);
  const std::lock_guard alone(of->making);
  if (Tensor there = find(form); there.owner) return there;
  Tensor made = make();
  put(form, made);
  return made;
}

Tensor WeightStore::find(const WeightForm& form) const {
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(form);
  return known == entries_.end() ? Tensor() : held(*known->second);
}

void WeightStore::put(const WeightForm& form, const Tensor& tensor) {
  const auto of = entry(form);
  const std::lock_guard lock(mutex_);
  of->tensor = tensor;
  of->tensor.owner = nullptr;
  of->owner = tensor.owner;
}

bool WeightStore::holds_any(const WeightPart& part) const {
  const std::lock_guard lock(mutex_);
  for (auto at = entries_.lower_bound({part, kPlainForm}); at != entries_.end() && at->first.part == part; ++at)
    if (!at->second->owner.expired()) return true;
  return false;
}

std::shared_ptr<std::mutex> WeightStore::turn_of(const std::string& what) {
  const std::lock_guard lock(mutex_);
  auto& turn = turns_[what];
  if (!turn) turn = std::make_shared<std::mutex>();
  return turn;
}

}  // namespace tessera::runtime
