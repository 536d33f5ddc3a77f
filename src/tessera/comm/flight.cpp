#include "tessera/comm/flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "tessera/comm/group.h"
#include "tessera/comm/operation.h"

namespace tessera::comm {
namespace {

template <size_t N>
void put(std::array<char, N>& to, std::string_view text) {
  const size_t length = std::min(text.size(), N - 1);
  std::copy_n(text.begin(), length, to.begin());
  to[length] = 0;
}

/// While it lives, no other thread of the rank writes entries. Others write for a fraction of a microsecond.
class Writing {
 public:
  Writing(Flight& flight, bool threads) : flight_(threads ? &flight : nullptr) {
    while (flight_ && flight_->writing.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  ~Writing() {
    if (flight_) flight_->writing.clear(std::memory_order_release);
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  Flight* flight_;
};

class Recorded : public Communicator {
 public:
  Recorded(std::unique_ptr<Communicator> inner, Flight& flight, std::string_view axes, std::span<const int> members,
           bool threads)
      : inner_(std::move(inner)), flight_(flight), axes_(axes), group_(group_text(members)), threads_(threads) {}

  int member() const override { return inner_->member(); }
  int size() const override { return inner_->size(); }

  Ticket start(const Operation& operation) override {
    const bool message = operation.kind == Kind::send || operation.kind == Kind::recv;
    const uint64_t number = ++(message ? operation.kind == Kind::send ? sends_ : recvs_ : collectives_);
    const uint64_t index = begin_entry(operation, number);
    const Ticket ticket = inner_->start(operation);
    // The operation is now known to be valid.
    const size_t given = in_bytes(operation, member());
    change(index, [&](FlightEntry& entry) { entry.bytes = given > 0 ? given : out_bytes(operation, member()); });
    under_way_.push_back({ticket, index});
    return ticket;
  }

  bool reduces_by_element(const Operation& operation) const override { return inner_->reduces_by_element(operation); }

  bool test(Ticket ticket) override {
    if (!inner_->test(ticket)) return false;
    if (const std::optional<uint64_t> index = index_of(ticket)) change(*index, finish);
    return true;
  }

  void wait(Ticket ticket) override {
    const std::optional<uint64_t> index = index_of(ticket);
    std::erase_if(under_way_, [&](const UnderWay& one) { return one.ticket == ticket; });
    if (index) change(*index, [](FlightEntry& entry) { entry.waited = steady_nanoseconds(); });
    inner_->wait(ticket);
    if (index) change(*index, finish);
  }

  void abandon() override { inner_->abandon(); }
  std::exception_ptr failure() const override { return inner_->failure(); }

 private:
  struct UnderWay {
    Ticket ticket;
    uint64_t index;  // of its entry, in all
  };

  uint64_t begin_entry(const Operation& operation, uint64_t number) {
    const Writing writing(flight_, threads_);
    const uint64_t index = flight_.begun.load(std::memory_order_relaxed);
    FlightEntry& entry = flight_.entries[index % Flight::kEntries];
    entry.number = number;
    entry.kind = operation.kind;
    entry.dtype = operation.dtype;
    entry.waited = entry.finished = 0;
    put(entry.value, operation.label);
    put(entry.axes, axes_);
    put(entry.group, group_);
    entry.started = steady_nanoseconds();
    flight_.begun.store(index + 1, std::memory_order_release);
    return index;
  }

  std::optional<uint64_t> index_of(Ticket ticket) const {
    for (const UnderWay& one : under_way_)
      if (one.ticket == ticket) return one.index;
    return std::nullopt;
  }

  // Unless a later one has taken its place.
  template <typename Change>
  void change(uint64_t index, Change how) {
    const Writing writing(flight_, threads_);
    if (index + Flight::kEntries > flight_.begun.load(std::memory_order_relaxed))
      how(flight_.entries[index % Flight::kEntries]);
  }

  static void finish(FlightEntry& entry) {
    if (entry.finished == 0) entry.finished = steady_nanoseconds();
  }

  std::unique_ptr<Communicator> inner_;
  Flight& flight_;
  std::string axes_, group_;
  bool threads_;
  uint64_t collectives_ = 0, sends_ = 0, recvs_ = 0;
  std::deque<UnderWay> under_way_;
};

}  // namespace

int64_t steady_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::unique_ptr<Communicator> recorded(std::unique_ptr<Communicator> communicator, Flight& flight,
                                       std::string_view axes, std::span<const int> members, bool threads) {
  return std::make_unique<Recorded>(std::move(communicator), flight, axes, members, threads);
}

std::string step_of(const Flight& flight) {
  constexpr size_t kMost = 128;
  const char* step = flight.step.load(std::memory_order_acquire);
  return step ? std::string(step, strnlen(step, kMost)) : "";
}

namespace {

/// The communication that a rank waits for, or else the last one under way.
const FlightEntry* unfinished(const FlightLog& log) {
  const FlightEntry* last = nullptr;
  for (const FlightEntry& entry : log.entries) {
    if (entry.finished != 0) continue;
    if (entry.waited != 0) return &entry;
    last = &entry;
  }
  return last;
}

std::string text_of(const FlightEntry& entry) {
  return fmt::format("{} '{}' (#{} of group {})", name_of(entry.kind), entry.value.data(), entry.number,
                     entry.group.data());
}

bool is_message(Kind kind) {
  return kind == Kind::send || kind == Kind::recv;
}

}  // namespace

bool is_waiting(const FlightLog& log) {
  const FlightEntry* entry = unfinished(log);
  return !log.step.empty() && entry && entry->waited != 0;
}

std::string place_of(const FlightLog& log) {
  if (log.step.empty()) return "";
  const FlightEntry* entry = unfinished(log);
  if (!entry) return "in " + log.step;
  if (entry->waited != 0) return "in " + log.step + ", waiting for " + text_of(*entry);
  return "in " + log.step + ", with " + text_of(*entry) + " under way";
}

namespace {

/// For a collective that one of the ranks has begun: who has begun it, and who has not. "" if its group has too many
/// members to be listed, or if all have begun it.
std::string arrivals_at(const FlightEntry& begun, const std::vector<FlightLog>& logs) {
  const std::string group = begun.group.data();
  if (!group.ends_with('}')) return "";
  std::vector<int> come, missing;
  for (const FlightLog& log : logs) {
    const bool member =
        ("," + group.substr(1, group.size() - 2) + ",").find(fmt::format(",{},", log.rank)) != std::string::npos;
    if (!member) continue;
    const bool here = std::any_of(log.entries.begin(), log.entries.end(), [&](const FlightEntry& entry) {
      return entry.group == begun.group && entry.axes == begun.axes && !is_message(entry.kind) &&
             entry.number >= begun.number;
    });
    (here ? come : missing).push_back(log.rank);
  }
  if (missing.empty()) return "";
  return fmt::format("{}: missing: {}; arrived: {}", text_of(begun), rank_text(missing), rank_text(come));
}

}  // namespace

std::string arrivals_of(const std::vector<FlightLog>& logs) {
  for (const bool waited : {true, false})
    for (const FlightLog& log : logs)
      for (const FlightEntry& entry : log.entries) {
        if (entry.finished != 0 || (entry.waited != 0) != waited || is_message(entry.kind)) continue;
        if (std::string text = arrivals_at(entry, logs); !text.empty()) return text;
      }
  return "";
}

void Flight::give_up() {
  const std::string name = step_of(*this);
  step.store(nullptr, std::memory_order_release);
  if (!name.empty()) put(failed_in, name);
}

FlightLog log_of(int rank, const Flight& flight) {
  FlightLog log{rank, step_of(flight), 0, {}};
  if (log.step.empty()) log.step = flight.failed_in.data();
  const uint64_t begun = flight.begun.load(std::memory_order_acquire);
  log.before = begun - std::min<uint64_t>(begun, Flight::kEntries);
  for (uint64_t index = log.before; index < begun; ++index)
    log.entries.push_back(flight.entries[index % Flight::kEntries]);
  return log;
}

std::vector<FlightLog> logs_of(World& world) {
  std::vector<FlightLog> logs;
  for (int rank = 0; rank < world.size(); ++rank)
    if (const Flight* flight = world.flight(rank)) logs.push_back(log_of(rank, *flight));
  return logs;
}

}  // namespace tessera::comm
