#include "tessera/comm/remote/remote_communicator.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/comm/group.h"

namespace tessera::comm {

RemoteCommunicator::RemoteCommunicator(std::shared_ptr<Watch> watch, int rank, std::span<const int> members,
                                       int world_size)
    : watch_(std::move(watch)),
      members_(members.begin(), members.end()),
      me_(member_of(rank, members, world_size)),
      sent_(members.size()),
      received_(members.size()) {}

RemoteCommunicator::~RemoteCommunicator() {
  if (!pending_.empty()) keep_for_good(std::move(pending_));
}

Ticket RemoteCommunicator::start(const Operation& operation) {
  validate(operation, me_, size());
  Pending pending;
  pending.staged = std::make_unique<Staged>(operation, me_, size(), library_adds(operation));
  pending.number = number_of(operation);
  watch_->check_alive([&] { return place_of(pending); });
  pending.transfer = begin(*pending.staged, pending.number);
  const Ticket ticket = ++last_ticket_;
  pending_.emplace_back(ticket, std::move(pending));
  return ticket;
}

uint64_t RemoteCommunicator::number_of(const Operation& operation) {
  if (operation.kind == Kind::send) return operation.to < 0 ? 0 : ++sent_[static_cast<size_t>(operation.to)];
  if (operation.kind == Kind::recv) return operation.from < 0 ? 0 : ++received_[static_cast<size_t>(operation.from)];
  return ++collectives_;
}

RemoteCommunicator::Pending& RemoteCommunicator::pending_of(Ticket ticket) {
  auto found = std::find_if(pending_.begin(), pending_.end(), [&](const auto& one) { return one.first == ticket; });
  check(found != pending_.end(), "each ticket is waited for once, where it was started");
  return found->second;
}

void RemoteCommunicator::wait(Ticket ticket) {
  Pending& pending = pending_of(ticket);
  watch_->wait_until([&] { return pending.transfer->advance(); }, [&] { return place_of(pending); },
                     pending.staged->operation().joins);
  pending.staged->finish();
  std::erase_if(pending_, [&](const auto& one) { return one.first == ticket; });
}

bool RemoteCommunicator::test(Ticket ticket) {
  Pending& pending = pending_of(ticket);
  watch_->check_alive([&] { return place_of(pending); });
  return pending.transfer->test();
}

// A library's order of additions may follow an element's place; of two addends there is only one sum.
bool RemoteCommunicator::reduces_by_element(const Operation& operation) const {
  return !traits_of(operation.kind).reduces || size() <= 2 || !library_adds(operation);
}

Place RemoteCommunicator::place_of(const Pending& pending) const {
  const Operation& operation = pending.staged->operation();
  Place place{describe(operation), group_text(members_), pending.number, operation.kind == Kind::recv, {}};
  for (int member = 0; member < size(); ++member) {
    const bool neighbour = member == operation.from || member == operation.to;
    if (member == me_ || ((place.message || operation.kind == Kind::permute) && !neighbour)) continue;
    place.awaited.push_back(rank_of(member));
  }
  return place;
}

}  // namespace tessera::comm
