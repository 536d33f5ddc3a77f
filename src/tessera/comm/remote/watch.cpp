#include "tessera/comm/remote/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a rank waits for answers to its question: a quarter of its timeout, clamped to these bounds. Waiting ranks
/// look for notices far more often.
constexpr std::chrono::milliseconds kLeastGrace{250}, kMostGrace{1000};

/// How long waiting ranks tell each other their places after another has failed.
constexpr std::chrono::milliseconds kLastWords{300};
constexpr std::chrono::milliseconds kLook{1};

// Notices begin with their kind.
constexpr char kEnded = 'E';     // the run has ended; the reason follows
constexpr char kDied = 'X';      // the sender has died, and so the run has ended; the reason follows
constexpr char kGaveUp = 'W';    // the run has ended; the reason follows, which says who has arrived where
constexpr char kMistake = 'U';   // the run has ended, by a user's mistake; the reason follows
constexpr char kHeard = 'H';     // rank 0 knows that the run has ended
constexpr char kQuestion = '?';  // where are you? The asker's place follows
constexpr char kAnswer = '!';    // the answerer's place
constexpr char kSeparator = '\x1f';

std::string encode(const Place& place) {
  std::string text =
      fmt::format("{}{}{}{}{}{}", place.number, kSeparator, place.message ? 1 : 0, kSeparator, place.group, kSeparator);
  for (int rank : place.awaited) text += fmt::format("{},", rank);
  return text + kSeparator + place.what;
}

Place decode(std::string_view text) {
  auto field = [&] {
    const size_t end = std::min(text.find(kSeparator), text.size());
    std::string value(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return value;
  };
  Place place;
  place.number = std::strtoull(field().c_str(), nullptr, 10);
  place.message = field() == "1";
  place.group = field();
  const std::string ranks = field();
  for (const char* at = ranks.c_str(); *at != '\0';) {
    char* end = nullptr;
    place.awaited.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = *end == ',' ? end + 1 : "";
  }
  place.what = text;
  return place;
}

std::string place_text(const Place& place) {
  return fmt::format("{} ({}{} of group {})", place.what, place.message ? "message #" : "#", place.number, place.group);
}

}  // namespace

std::string end_notice(std::string_view reason, ErrorKind kind) {
  return std::string(1, kind == ErrorKind::user ? kMistake : kEnded).append(reason);
}

std::string death_notice(std::string_view reason) {
  return std::string(1, kDied).append(reason);
}

bool is_end_notice(std::string_view text) {
  return text.starts_with(kEnded) || text.starts_with(kDied) || text.starts_with(kGaveUp) || text.starts_with(kMistake);
}

Watch::Watch(int rank, int size, std::chrono::milliseconds timeout, std::chrono::milliseconds join_timeout,
             Notices& notices)
    : rank_(rank),
      timeout_(timeout),
      join_timeout_(join_timeout),
      notices_(notices),
      places_(static_cast<size_t>(size)) {}

void Watch::abort(std::string_view message, ErrorKind kind) {
  std::lock_guard lock(mutex_);
  read_notices();  // another rank may have been first
  if (!reason_.empty()) return;
  reason_ = fmt::format("rank {} ended the run: {}", rank_, message);
  kind_ = kind;
  failed_ = rank_;
  notices_.tell(end_notice(reason_, kind));
}

bool Watch::first_has_heard(std::chrono::milliseconds most) {
  const Clock::time_point deadline = Clock::now() + most;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      read_notices();
      if (rank_ == 0 || first_heard_) return true;
    }
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLook);
  }
}

bool Watch::ended() {
  std::lock_guard lock(mutex_);
  read_notices();
  return !reason_.empty();
}

std::optional<End> Watch::end() {
  std::lock_guard lock(mutex_);
  if (!reason_.empty()) return End{reason_, kind_, failed_};
  const std::optional<Notice> notice = notices_.end();
  if (!notice) return std::nullopt;
  return End{notice->text.substr(1), notice->text[0] == kMistake ? ErrorKind::user : ErrorKind::running, notice->from};
}

std::vector<int> Watch::left(std::chrono::milliseconds most) {
  const Clock::time_point deadline = Clock::now() + most;
  notices_.ask_carrier();
  while (true) {
    if (const auto answer = notices_.carrier_answer()) return *answer;
    if (Clock::now() >= deadline) return {};
    std::this_thread::sleep_for(kLook);
  }
}

void Watch::check_alive() {
  std::lock_guard lock(mutex_);
  read_notices();
  if (!reason_.empty()) throw Error(kind_, "comm", reason_);
}

void Watch::check_alive(const std::function<Place()>& place) {
  {
    std::lock_guard lock(mutex_);
    if (Clock::now() - looked_ >= kLook) read_notices();
    if (reason_.empty()) return;
  }
  throw_end(place());
}

void Watch::read_notices() {
  looked_ = Clock::now();
  while (auto notice = notices_.next()) take(*notice);
}

void Watch::take(const Notice& notice) {
  if (notice.text.empty()) return;
  const std::string_view text = std::string_view(notice.text).substr(1);
  switch (notice.text[0]) {
    case kEnded:
    case kDied:
    case kGaveUp:
    case kMistake:
      if (notice.from == 0 && notice.text[0] != kDied) first_heard_ = true;
      if (!reason_.empty()) return;
      reason_ = text;
      kind_ = notice.text[0] == kMistake ? ErrorKind::user : ErrorKind::running;
      explained_ = notice.text[0] != kEnded && notice.text[0] != kDied;
      failed_ = notice.from;
      if (rank_ == 0) notices_.tell(std::string(1, kHeard));
      return;
    case kHeard:
      first_heard_ = true;
      return;
    case kQuestion:
      ++questions_;
      [[fallthrough]];
    case kAnswer:
      places_.at(static_cast<size_t>(notice.from)) = decode(text);
      return;
    default:
      fail_running("comm", "rank {} says '{}', which is not a valid notice", notice.from, notice.text);
  }
}

void Watch::wait_until(const std::function<bool()>& step, const std::function<Place()>& place, bool joins) {
  if (!step()) wait_until(step, place, joins ? join_timeout_ : timeout_);
}

void Watch::wait_until(const std::function<bool()>& step, const std::function<Place()>& place,
                       std::chrono::milliseconds most) {
  uint64_t answered = 0;
  {
    std::lock_guard lock(mutex_);
    answered = questions_;
  }
  const Clock::time_point deadline = Clock::now() + most;
  const auto grace = std::clamp(most / 4, kLeastGrace, kMostGrace);
  std::optional<Clock::time_point> asked;
  while (!step()) {
    check_alive(place);
    std::unique_lock lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (!asked && now >= deadline) {
      notices_.ask_carrier();
      notices_.tell(kQuestion + encode(place()));
      asked = now;
    } else if (answered != questions_) {
      notices_.tell(kAnswer + encode(place()));
    }
    answered = questions_;
    if (!asked || now < *asked + grace) continue;
    if (!reason_.empty()) continue;
    reason_ = fmt::format("rank {} ended the run: {}", rank_, verdict(place(), most));
    explained_ = true;
    notices_.tell(std::string(1, kGaveUp) + reason_);
    lock.unlock();
    throw_end(place());
  }
}

void Watch::wait_for_members(std::span<const int> members, const std::function<bool()>& step) {
  Place joining{"joining", group_text(members), 0, false, {}};
  std::copy_if(members.begin(), members.end(), std::back_inserter(joining.awaited),
               [&](int rank) { return rank != rank_; });
  wait_until(
      step, [&] { return joining; }, join_timeout_);
}

void Watch::throw_end(const Place& place) {
  std::unique_lock lock(mutex_);
  std::string text = reason_;
  if (!explained_ && failed_ != rank_) {
    const bool told = notices_.tell(kAnswer + encode(place));
    auto expected = [&](int rank) { return rank != failed_ && !has_come(rank, place); };
    const Clock::time_point deadline = Clock::now() + kLastWords;
    while (told && Clock::now() < deadline && std::any_of(place.awaited.begin(), place.awaited.end(), expected)) {
      lock.unlock();
      std::this_thread::sleep_for(kLook);
      lock.lock();
      read_notices();
    }
    text += fmt::format("; rank {} waited at {}", rank_, place_text(place));
    if (told) text += ": " + arrivals(place);
  }
  lock.unlock();
  throw Error(kind_, "comm", text);
}

bool Watch::has_come(int rank, const Place& place) const {
  const auto& other = places_[static_cast<size_t>(rank)];
  return rank == rank_ ||
         (other && other->message == place.message && other->group == place.group && other->number >= place.number);
}

/// "missing: rank 1; arrived: ranks 0,2"; for a message, who has not sent it.
std::string Watch::arrivals(const Place& place) const {
  if (place.message) return fmt::format("{} has not sent it", rank_text(place.awaited));
  std::vector<int> come{rank_}, missing;
  for (int rank : place.awaited) (has_come(rank, place) ? come : missing).push_back(rank);
  std::sort(come.begin(), come.end());
  return fmt::format("missing: {}; arrived: {}", rank_text(missing), rank_text(come));
}

std::string Watch::verdict(const Place& place, std::chrono::milliseconds waited) const {
  std::string text =
      place.message ? place.what : fmt::format("{} (#{} of group {})", place.what, place.number, place.group);
  text += fmt::format(" on rank {} gave up after {} ms: ", rank_, waited.count());
  if (!notices_.carrier_answer()) {
    // Answers could only come through it.
    const int carrier = notices_.carrier();
    text += fmt::format("rank {} does not answer: it is stopped, or its machine or network is gone", carrier);
    std::vector<int> others = place.awaited;
    std::erase(others, carrier);
    if (!others.empty())
      text += fmt::format("; where {} {} is not known, because rank {} passes on what ranks tell each other",
                          rank_text(others), others.size() == 1 ? "is" : "are", carrier);
    return text;
  }
  text += place.message ? fmt::format("{} has not sent message #{} to it in group {}", rank_text(place.awaited),
                                      place.number, place.group)
                        : arrivals(place);
  // Follow the waits of the ranks that have answered; ranks that have said nothing are at fault.
  std::set<int> known{rank_};
  std::vector<int> ahead = place.awaited, silent;
  while (!ahead.empty()) {
    const int rank = ahead.back();
    ahead.pop_back();
    if (!known.insert(rank).second) continue;
    const auto& other = places_[static_cast<size_t>(rank)];
    if (!other) {
      silent.push_back(rank);
      continue;
    }
    if (other->group != place.group || other->number != place.number || other->message != place.message)
      text += fmt::format("; rank {} waits at {}", rank, place_text(*other));
    ahead.insert(ahead.end(), other->awaited.begin(), other->awaited.end());
  }
  std::sort(silent.begin(), silent.end());
  return text + silence(silent);
}

/// What is known of ranks that have not answered.
std::string Watch::silence(const std::vector<int>& silent) const {
  const std::vector<int> gone = notices_.carrier_answer().value_or(std::vector<int>());
  std::vector<int> left, hanging;
  for (int rank : silent) (std::find(gone.begin(), gone.end(), rank) != gone.end() ? left : hanging).push_back(rank);
  std::string text;
  if (!left.empty())
    text += fmt::format("; {} {} done and left: ranks do not make the same calls", rank_text(left),
                        left.size() == 1 ? "was" : "were");
  if (!hanging.empty())
    text += fmt::format("; {} {} nothing: gone, hanging, or at work for longer than that", rank_text(hanging),
                        hanging.size() == 1 ? "says" : "say");
  return text;
}

}  // namespace tessera::comm
