#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/operation.h"

namespace tessera::runtime {

/// Ranks as threads whose communications move what there was at their start, and appear at their wait. Until then an
/// operation's result holds rubbish. A wait throws if somebody has changed the operand or the result before it, a start
/// if the operation would get into the way of another that is under way.
class CheckedWorld : public comm::World {
 public:
  /// `tests`: how often an operation must be tested before it is said to have ended.
  explicit CheckedWorld(int size, int tests = 1, bool advances_by_tests = false)
      : inner_(comm::make_local_world(size)),
        tests_(tests),
        advances_by_tests_(advances_by_tests),
        under_way_(static_cast<size_t>(size)) {}

  int size() const override { return inner_->size(); }
  bool advances_by_tests() const override { return advances_by_tests_; }
  void abort(int rank, std::string_view message, ErrorKind kind) override { inner_->abort(rank, message, kind); }
  std::unique_ptr<comm::Communicator> join(int rank, std::span<const int> members) override {
    return std::make_unique<Checked>(*this, rank, inner_->join(rank, members));
  }

  /// The history of a rank: "start p", "test p" (until it has ended), "wait p".
  std::vector<std::string> log(int rank) {
    std::lock_guard lock(mutex_);
    return logs_[rank];
  }

 private:
  using Bytes = std::vector<std::byte>;
  struct Range {
    const std::byte* begin = nullptr;
    size_t bytes = 0;
    bool meets(const Range& other) const {
      return bytes > 0 && other.bytes > 0 && begin < other.begin + other.bytes && other.begin < begin + bytes;
    }
  };
  struct UnderWay {
    const comm::Communicator* owner;
    comm::Ticket ticket;
    Range in, out;
  };

  class Checked : public comm::Communicator {
   public:
    Checked(CheckedWorld& world, int rank, std::unique_ptr<comm::Communicator> inner)
        : world_(world), rank_(rank), inner_(std::move(inner)) {}
    int member() const override { return inner_->member(); }
    int size() const override { return inner_->size(); }
    bool reduces_by_element(const comm::Operation& operation) const override {
      return inner_->reduces_by_element(operation);
    }

    comm::Ticket start(const comm::Operation& operation) override {
      note("start", operation);
      Pending pending{operation, {}, {}, {}, 0};
      check_room(operation);
      pending.in = copy_of(operation.in, comm::in_bytes(operation, member()));
      pending.out.resize(comm::out_bytes(operation, member()));
      constexpr int kRubbish = 0x7f;  // also a NaN
      if (operation.out && operation.out != operation.in) std::memset(operation.out, kRubbish, pending.out.size());
      pending.result = copy_of(operation.out, pending.out.size());
      comm::Operation own = operation;
      own.in = pending.in.empty() ? operation.in : pending.in.data();
      own.out = pending.out.empty() ? operation.out : pending.out.data();
      const comm::Ticket ticket = inner_->start(own);  // NB a vector that is moved keeps its memory
      pending_.emplace(ticket, std::move(pending));
      world_.under_way_[rank_].push_back({this, ticket, operand_of(operation), result_of(operation)});
      return ticket;
    }

    bool test(comm::Ticket ticket) override {
      Pending& pending = pending_.at(ticket);
      note("test", pending.operation);
      return ++pending.tests >= world_.tests_;
    }

    void wait(comm::Ticket ticket) override {
      const Pending pending = std::move(pending_.extract(ticket).mapped());
      const comm::Operation& operation = pending.operation;
      note("wait", operation);
      std::erase_if(world_.under_way_[rank_],
                    [&](const UnderWay& one) { return one.owner == this && one.ticket == ticket; });
      if (!holds(operation.in, pending.in)) throw_changed(operation, "operand has changed");
      if (!holds(operation.out, pending.result)) throw_changed(operation, "result has been written to");
      inner_->wait(ticket);
      if (!pending.out.empty()) std::memcpy(operation.out, pending.out.data(), pending.out.size());
    }

   private:
    struct Pending {
      comm::Operation operation;
      Bytes in, out, result;  // result: what lies there until the wait
      int tests = 0;
    };

    static Bytes copy_of(const void* data, size_t bytes) {
      const auto* begin = static_cast<const std::byte*>(data);
      return bytes == 0 ? Bytes{} : Bytes(begin, begin + bytes);
    }
    static bool holds(const void* data, const Bytes& bytes) {
      return bytes.empty() || std::memcmp(data, bytes.data(), bytes.size()) == 0;
    }
    Range operand_of(const comm::Operation& operation) const {
      return {static_cast<const std::byte*>(operation.in), comm::in_bytes(operation, member())};
    }
    Range result_of(const comm::Operation& operation) const {
      return {static_cast<const std::byte*>(operation.out), comm::out_bytes(operation, member())};
    }
    void check_room(const comm::Operation& operation) const {
      const Range in = operand_of(operation), out = result_of(operation);
      for (const UnderWay& other : world_.under_way_[rank_])
        if (out.meets(other.in) || out.meets(other.out) || in.meets(other.out))
          fail_running("overlap", "{}: it touches what is under way", comm::describe(operation));
    }
    [[noreturn]] static void throw_changed(const comm::Operation& operation, const char* what) {
      fail_running("overlap", "{}: its {} before the wait", comm::describe(operation), what);
    }
    void note(std::string_view what, const comm::Operation& operation) {
      std::lock_guard lock(world_.mutex_);
      world_.logs_[rank_].push_back(std::string(what) + " " + std::string(operation.label));
    }

    CheckedWorld& world_;
    int rank_;
    std::unique_ptr<comm::Communicator> inner_;
    std::map<comm::Ticket, Pending> pending_;
  };

  std::unique_ptr<comm::World> inner_;
  int tests_;
  bool advances_by_tests_;
  std::mutex mutex_;
  std::map<int, std::vector<std::string>> logs_;  // by rank
  std::vector<std::vector<UnderWay>> under_way_;  // by rank, each of that rank's thread alone
};

}  // namespace tessera::runtime
