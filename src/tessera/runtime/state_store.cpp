#include "tessera/runtime/state_store.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::runtime {

StateSlot* RankStates::find(std::string_view name) {
  auto known = slots_.find(name);
  return known == slots_.end() ? nullptr : &known->second;
}

StateSlot& RankStates::add(StateSlot slot) {
  std::string name = slot.name;
  return slots_.insert_or_assign(std::move(name), std::move(slot)).first->second;
}

size_t RankStates::bytes() const {
  size_t sum = 0;
  for (const auto& [name, slot] : slots_) sum += slot.bytes * (slot.has_spare ? 2 : 1);
  return sum;
}

RankStates& StateStore::of(int rank) {
  return ranks_[rank];
}

void StateStore::require_whole() const {
  if (torn_)
    fail("run",
         "an earlier step failed while ranks were updating the states, so that their parts may be of different steps; "
         "load all states again before the next step");
}

void StateStore::note_failure() {
  for (auto& [rank, states] : ranks_) torn_ |= std::exchange(states.is_writing, false);
}

void StateStore::note_written() {
  torn_ = false;
}

}  // namespace tessera::runtime
