#include "tessera/comm/remote/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// How long after its question a rank waits for answers: ranks that wait look for notices far more often.
constexpr std::chrono::milliseconds kGrace{1000};

// Notices begin with their kind.
constexpr char kEnded = 'E';     // the run; the reason follows
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

std::string end_notice(std::string_view reason) {
  return std::string(1, kEnded).append(reason);
}

bool is_end_notice(std::string_view text) {
  return text.starts_with(kEnded);
}

Watch::Watch(int rank, int size, std::chrono::milliseconds timeout, Notices& notices)
    : rank_(rank), timeout_(timeout), notices_(notices), places_(static_cast<size_t>(size)) {}

void Watch::abort(std::string_view message) {
  std::lock_guard lock(mutex_);
  if (!reason_.empty()) return;
  reason_ = fmt::format("rank {} ended the run: {}", rank_, message);
  notices_.tell(end_notice(reason_));
}

bool Watch::ended() {
  std::lock_guard lock(mutex_);
  return !reason_.empty();
}

std::string Watch::reason() {
  std::lock_guard lock(mutex_);
  return reason_;
}

void Watch::check_alive() {
  std::lock_guard lock(mutex_);
  read_notices();
  if (!reason_.empty()) fail_running("comm", "{}", reason_);
}

void Watch::read_notices() {
  while (auto notice = notices_.next()) take(*notice);
}

void Watch::take(const Notice& notice) {
  if (notice.text.empty()) return;
  const std::string_view text = std::string_view(notice.text).substr(1);
  switch (notice.text[0]) {
    case kEnded:
      if (reason_.empty()) reason_ = text;
      return;
    case kQuestion:
      ++questions_;
      [[fallthrough]];
    case kAnswer:
      places_.at(static_cast<size_t>(notice.from)) = decode(text);
      return;
    default:
      fail_running("comm", "rank {} says '{}', which is no notice", notice.from, notice.text);
  }
}

void Watch::wait_until(const std::function<bool()>& step, const std::function<Place()>& place) {
  uint64_t answered = 0;
  {
    std::lock_guard lock(mutex_);
    answered = questions_;
  }
  const Clock::time_point deadline = Clock::now() + timeout_;
  std::optional<Clock::time_point> asked;
  while (!step()) {
    check_alive();
    std::unique_lock lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (!asked && now >= deadline) {
      notices_.tell(kQuestion + encode(place()));
      asked = now;
    } else if (answered != questions_) {
      notices_.tell(kAnswer + encode(place()));
    }
    answered = questions_;
    if (!asked || now < *asked + kGrace) continue;
    const std::string reason = verdict(place());
    lock.unlock();
    abort(reason);
    check_alive();  // throws our reason, or an earlier one
  }
}

std::string Watch::verdict(const Place& place) const {
  std::string text;
  if (place.message) {
    text = fmt::format("{} on rank {} gave up after {} ms: {} has not sent message #{} to it in group {}", place.what,
                       rank_, timeout_.count(), rank_text(place.awaited), place.number, place.group);
  } else {
    std::vector<int> come{rank_}, missing;
    for (int rank : place.awaited) {
      const auto& other = places_[static_cast<size_t>(rank)];
      const bool here = other && !other->message && other->group == place.group && other->number >= place.number;
      (here ? come : missing).push_back(rank);
    }
    std::sort(come.begin(), come.end());
    text = fmt::format("{} (#{} of group {}) on rank {} gave up after {} ms: not come: {}; come: {}", place.what,
                       place.number, place.group, rank_, timeout_.count(), rank_text(missing), rank_text(come));
  }
  // Whom do those wait for that have said where they are? Who has said nothing is at fault.
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
  if (!silent.empty())
    text += fmt::format("; {} {} nothing: gone, hanging, or at work for longer than that", rank_text(silent),
                        silent.size() == 1 ? "says" : "say");
  return text;
}

}  // namespace tessera::comm
