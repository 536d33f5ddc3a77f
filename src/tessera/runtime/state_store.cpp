#include "tessera/runtime/state_store.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"

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
  for (const auto& [name, bytes] : bytes_by_name()) sum += bytes;
  return sum;
}

std::map<std::string, size_t> RankStates::bytes_by_name() const {
  std::map<std::string, size_t> bytes;
  for (const auto& [name, slot] : slots_) bytes[name] = slot.bytes * (slot.has_spare ? 2 : 1);
  return bytes;
}

std::vector<std::string> RankStates::names() const {
  std::vector<std::string> names;
  for (const auto& [name, slot] : slots_) names.push_back(name);
  return names;
}

void RankStates::abandon_memory() const {
  keep_for_good(slots_);
}

void StateStore::admit(const Mesh& mesh, const std::vector<int>& here, std::string_view device,
                       const WholeStates& changing, const std::set<std::string>& fixed) {
  if (mesh_ && (mesh_->str() != mesh.str() || here_ != here))
    fail("state", "the states are of ranks of the mesh {}, but the program is for {}; share states on one mesh only",
         mesh_->str(), mesh.str());
  if (mesh_ && device_ != device)
    fail("state", "the states are on the device '{}', but the session is for '{}'; share states on one device only",
         device_, device);
  const auto refuse_shared = [](const WholeStates& a, const std::set<std::string>& b) {
    for (const auto& [name, state] : a)
      if (b.contains(name))
        fail("state",
             "the state '{}' changes in one of the programs that share it, but not in the other; name it as one that "
             "changes in both (`states`, Model::with_states)",
             name);
  };
  refuse_shared(changing, fixed_);
  refuse_shared(changing_, fixed);
  for (const auto& [name, state] : changing)
    if (auto known = changing_.find(name); known != changing_.end() && !(known->second == state))
      fail("state",
           "the programs that share the state '{}' hold it in different ways, one {}, the other {}; name it in an "
           "annotation or `storage` of both, so that it stays whole",
           name, known->second.str(name), state.str(name));
  mesh_ = mesh;
  device_ = device;
  here_ = here;
  changing_.insert(changing.begin(), changing.end());
  fixed_.insert(fixed.begin(), fixed.end());
}

RankStates& StateStore::of(int rank) {
  return ranks_[rank];
}

void StateStore::require_whole() const {
  if (!torn_.empty())
    fail("run",
         "an earlier step failed while ranks were updating the states, so that their parts may be of different steps; "
         "load all states again before the next step ('{}' has not been loaded yet)",
         *torn_.begin());
}

void StateStore::note_failure() {
  bool writing = false;
  for (auto& [rank, states] : ranks_) writing |= states.is_writing.exchange(false);
  if (!writing) return;
  for (auto& [rank, states] : ranks_)
    for (std::string& name : states.names()) torn_.insert(std::move(name));
}

void StateStore::note_written(const std::set<std::string>& states) {
  for (const std::string& name : states) torn_.erase(name);
}

}  // namespace tessera::runtime
