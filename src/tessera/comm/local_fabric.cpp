#include "tessera/comm/local_fabric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::comm {

Group::Group(std::vector<int> members) : members_(std::move(members)), mailboxes_(members_.size() * members_.size()) {
  for (Slot& slot : slots_) {
    slot.entries = std::vector<Entry>(members_.size());
    for (Entry& entry : slot.entries) {
      entry.operation.reserve(size());
      entry.eager = std::make_unique_for_overwrite<std::byte[]>(kEagerBytes);
    }
  }
}

std::string Group::str() const {
  return fmt::format("{{{}}}", fmt::join(members_, ","));
}

Fabric::Fabric(int size, const WorldOptions& options) : options_(options), stations_(std::max(size, 0)) {
  if (size < 1) fail("comm", "a world of {} ranks; it needs at least one", size);
}

Group& Fabric::group_of(int rank, std::span<const int> members) {
  std::vector<int> key(members.begin(), members.end());
  for (int member : key) {
    if (member < 0 || member >= size())
      fail("comm", "group {{{}}}: rank {} is not in the world of {} ranks", fmt::join(key, ","), member, size());
    if (std::count(key.begin(), key.end(), member) > 1)
      fail("comm", "group {{{}}}: rank {} is named more than once", fmt::join(key, ","), member);
  }
  auto found = std::find(key.begin(), key.end(), rank);
  if (found == key.end())
    fail("comm", "group {{{}}}: rank {} joins it but is not named in it", fmt::join(key, ","), rank);
  size_t member = static_cast<size_t>(found - key.begin());

  std::lock_guard lock(mutex_);
  Groups& same = groups_[key];
  same.joined.resize(key.size());
  size_t index = same.joined[member]++;
  if (index == same.groups.size()) same.groups.push_back(std::make_unique<Group>(std::move(key)));
  return *same.groups[index];
}

void Fabric::abort(int rank, std::string_view message) {
  {
    std::lock_guard lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    reason_ = fmt::format("rank {} ended the run: {}", rank, message);
    aborted_.store(true, std::memory_order_release);
  }
  for (Station& station : stations_) station.bell.ring();
}

void Fabric::throw_reason() const {
  fail_running("comm", "{}", reason_);
}

}  // namespace tessera::comm
