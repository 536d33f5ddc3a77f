#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/comm/remote/staged.h"
#include "tessera/comm/remote/watch.h"

namespace tessera::comm {

/// An operation that a message library carries out.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Whether it has ended. Advances operations that the library leaves to its callers; may sleep for some milliseconds.
  virtual bool advance() = 0;
  /// Like advance(), but never sleeps.
  virtual bool test() { return false; }
};

/// The common part of communicators over message libraries: validates, stages and counts operations, and waits for them
/// under the world's watch.
class RemoteCommunicator : public Communicator {
 public:
  /// Operations that were not waited for stay in memory until the process ends, since the library may still write to
  /// them.
  ~RemoteCommunicator() override;
  int member() const override { return me_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Ticket start(const Operation& operation) override;
  void wait(Ticket ticket) override;
  bool test(Ticket ticket) override;
  bool reduces_by_element(const Operation& operation) const override;

 protected:
  /// Throws a user error if these are not members of a group of the world.
  RemoteCommunicator(std::shared_ptr<Watch> watch, int rank, std::span<const int> members, int world_size);

  /// Hands a staged operation to the library. `number` is the collective's in this communicator, or the message's
  /// between its two members, from 1. The staged operation outlives the transfer.
  virtual std::unique_ptr<Transfer> begin(Staged& staged, uint64_t number) = 0;
  /// Whether the library carries out this reduction, so that it must be staged as one that the library knows.
  virtual bool library_adds(const Operation& operation) const = 0;

  int rank_of(int member) const { return members_[static_cast<size_t>(member)]; }
  const std::vector<int>& members() const { return members_; }

 private:
  struct Pending {
    std::unique_ptr<Staged> staged;
    std::unique_ptr<Transfer> transfer;
    uint64_t number = 0;
  };

  Pending& pending_of(Ticket ticket);
  uint64_t number_of(const Operation& operation);
  Place place_of(const Pending& pending) const;

  std::shared_ptr<Watch> watch_;
  std::vector<int> members_;
  int me_;
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sent_, received_;  // messages, by member
  Ticket last_ticket_ = 0;
  std::vector<std::pair<Ticket, Pending>> pending_;  // a few
};

}  // namespace tessera::comm
