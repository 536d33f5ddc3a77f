#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/comm/group.h"
#include "tessera/comm/local/communicator.h"

namespace tessera::comm {
namespace {

/// A wait polls every 20 ms. If it has not polled for this much longer, or for half of its timeout, it does not count
/// as a wait: its thread hangs or is stopped, in the middle of its share of the work.
constexpr std::chrono::milliseconds kStill{200};

/// A rank's wait and the ranks that it waits for; read while the rank may go on, and so only approximate.
struct Wait {
  std::string what;
  std::vector<int> awaited;  // ranks; none: it waits for nobody
};

Wait wait_of(int rank, const WaitNote& note, std::chrono::milliseconds timeout) {
  Wait wait;
  const int64_t looked = note.looked.load(std::memory_order_acquire);
  Group* group = note.group.load(std::memory_order_relaxed);
  const std::chrono::nanoseconds still(steady_nanoseconds() - looked);
  if (looked == 0 || group == nullptr || still > std::max(kStill, timeout / 2)) return wait;
  const uint64_t number = note.number.load(std::memory_order_relaxed);
  if (const int peer = note.peer.load(std::memory_order_relaxed); peer >= 0) {
    if (peer >= group->size()) return wait;  // of another wait, which had the note before or has it now
    wait.awaited.push_back(group->rank_of(peer));
    wait.what = fmt::format("message #{} with rank {} in group {}", number, wait.awaited[0], group->str());
    return wait;
  }
  const auto entries = group->slot(number).entries;
  const auto own = static_cast<int>(std::ranges::find(group->members(), rank) - group->members().begin());
  const Operation* stated =
      entries[own].arrived.load(std::memory_order_acquire) == number ? &*entries[own].operation : nullptr;
  const auto behind = [&](std::atomic<uint64_t> Entry::*mark) {
    std::vector<int> ranks;
    for (int member = 0; member < group->size(); ++member) {
      const bool neighbour = !stated || stated->kind != Kind::permute || member == stated->to || member == stated->from;
      if (member != own && neighbour && (entries[member].*mark).load(std::memory_order_acquire) < number)
        ranks.push_back(group->rank_of(member));
    }
    return ranks;
  };
  wait.awaited = behind(&Entry::arrived);
  if (wait.awaited.empty()) wait.awaited = behind(&Entry::finished);
  wait.what = fmt::format("{}#{} of group {}", stated ? describe(*stated) + ", " : "", number, group->str());
  return wait;
}

}  // namespace

std::string Fabric::blame(int rank, const WaitNote& wait) {
  std::set<int> seen = {rank}, idle;
  std::vector<int> next;
  std::string chain;
  const auto follow = [&](const Wait& found) {
    for (int other : found.awaited)
      if (seen.insert(other).second) next.push_back(other);
    return !found.awaited.empty();
  };
  follow(wait_of(rank, wait, options_.timeout));
  while (!next.empty()) {
    const int at = next.back();
    next.pop_back();
    bool waits = false;
    for (const WaitNote& note : station(at).waits) {
      const Wait found = wait_of(at, note, options_.timeout);
      if (!follow(found)) continue;
      waits = true;
      chain += fmt::format("rank {} waits for {} at {}; ", at, rank_text(found.awaited), found.what);
    }
    if (!waits) idle.insert(at);
  }
  if (idle.empty()) return chain.empty() ? "" : chain + "they wait for one another in a cycle";
  for (int at : idle) {
    const std::string step = step_of(flight(at));
    chain += fmt::format("rank {} waits for nobody and {}; ", at, step.empty() ? "runs no operator" : "is in " + step);
  }
  return chain.substr(0, chain.size() - 2);
}

}  // namespace tessera::comm
