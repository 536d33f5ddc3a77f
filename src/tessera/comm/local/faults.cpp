#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"
#include "tessera/comm/local/communicator.h"

namespace tessera::comm {
/// Ends the run for all ranks, since operations that this rank and the others have published will not be finished.
void LocalCommunicator::raise(const std::string& message) {
  fabric_->abort(rank_, message, ErrorKind::running);
  fail_running("comm", "{}", message);
}

/// All members have arrived: their statements must agree. In an all_to_all, each checks its own sends and receives.
void LocalCommunicator::check_agreement(const Pending& pending) {
  const auto& entries = group_.slot(pending.number).entries;
  auto disagree = [&](size_t a, size_t b) {
    raise(fmt::format("ranks {} and {} disagree on operation #{} of group {}: rank {} has {}; rank {} has {}",
                      group_.rank_of(a), group_.rank_of(b), pending.number, group_.str(), group_.rank_of(a),
                      describe(*entries[a].operation), group_.rank_of(b), describe(*entries[b].operation)));
  };
  for (size_t j = 1; j < entries.size(); ++j)
    if (entries[j].signature != entries[0].signature) disagree(0, j);
  if (pending.operation->kind != Kind::all_to_all) return;
  for (size_t j = 0; j < entries.size(); ++j) {
    const int64_t* others = entries[j].counts;
    if (pending.operation->counts[j] != others[entries.size() + me_]) disagree(me_, j);
    if (pending.operation->recv_counts[j] != others[me_]) disagree(j, me_);
  }
}

/// Both neighbours of a permutation have arrived: they must name each other.
void LocalCommunicator::check_pair(const Pending& pending, int sender, int receiver) {
  const auto& entries = group_.slot(pending.number).entries;
  const Entry& from = entries[sender];
  const Entry& to = entries[receiver];
  if (from.signature == to.signature && from.operation->to == receiver && to.operation->from == sender) return;
  raise(fmt::format("ranks {} and {} disagree on operation #{} of group {}: rank {} has {}; rank {} has {}",
                    group_.rank_of(sender), group_.rank_of(receiver), pending.number, group_.str(),
                    group_.rank_of(sender), describe(*from.operation), group_.rank_of(receiver),
                    describe(*to.operation)));
}

void LocalCommunicator::check_message(const Pending& pending, const Operation& sent) {
  if (signature(sent) == signature(*pending.operation)) return;
  int sender = group_.rank_of(pending.operation->from);
  raise(fmt::format("ranks {} and {} disagree on message #{} from {} to {} in group {}: rank {} has {}; rank {} has {}",
                    sender, rank_, pending.number + 1, sender, rank_, group_.str(), sender, describe(sent), rank_,
                    describe(*pending.operation)));
}

std::string LocalCommunicator::late_operation(const Pending& pending) {
  const Operation& operation = *pending.operation;
  const auto waited = patience(operation.joins).count();
  if (pending.stage == Pending::Stage::receiving) {
    int sender = group_.rank_of(operation.from);
    return fmt::format("{} on rank {} gave up after {} ms: rank {} has not sent message #{} to it in group {}",
                       describe(operation), rank_, waited, sender, pending.number + 1, group_.str());
  }
  if (pending.stage == Pending::Stage::sending)
    return fmt::format("{} on rank {} gave up after {} ms: rank {} has not finished reading message #{} in group {}",
                       describe(operation), rank_, waited, group_.rank_of(operation.to), pending.number + 1,
                       group_.str());
  const auto& entries = group_.slot(pending.number).entries;
  std::vector<int> come, missing, busy;
  for (int member = 0; member < size(); ++member) {
    const bool neighbour = member == operation.from || member == operation.to;
    if (pending.stage == Pending::Stage::exchange && !neighbour) continue;  // a permutation waits for no others
    bool here = entries[member].arrived.load(std::memory_order_acquire) >= pending.number;
    bool finished = entries[member].finished.load(std::memory_order_acquire) >= pending.number;
    (here ? come : missing).push_back(group_.rank_of(member));
    if (here && !finished && member != me_) busy.push_back(group_.rank_of(member));
  }
  return fmt::format("{} (#{} of group {}) on rank {} gave up after {} ms: missing: {}; arrived: {}; not finished: {}",
                     describe(operation), pending.number, group_.str(), rank_, waited, rank_text(missing),
                     rank_text(come), rank_text(busy));
}

std::string LocalCommunicator::late_start(uint64_t number) {
  uint64_t oldest = number - kWindow;
  std::vector<int> missing;
  for (int member = 0; member < size(); ++member)
    if (group_.slot(oldest).entries[member].arrived.load(std::memory_order_acquire) < oldest)
      missing.push_back(group_.rank_of(member));
  return fmt::format(
      "operation #{} of group {} on rank {} could not start for {} ms: {} are in flight; missing at #{}: {}", number,
      group_.str(), rank_, patience(false).count(), kWindow, oldest, rank_text(missing));
}

}  // namespace tessera::comm
