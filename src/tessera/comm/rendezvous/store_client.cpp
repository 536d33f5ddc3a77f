#include "tessera/comm/rendezvous/store_client.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/comm/plugin.h"

namespace tessera::comm {
namespace {

constexpr std::chrono::milliseconds kStoreLook{100};
/// How long a rank may take to hear that the run has ended: the timeout, clamped to these bounds.
constexpr std::chrono::milliseconds kLeastDeaf{2000}, kMostDeaf{5000};

/// "1,3"
std::vector<int> numbers_in(const std::string& text) {
  std::vector<int> numbers;
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    numbers.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = *end == ',' ? end + 1 : "";
  }
  return numbers;
}

}  // namespace

StoreClient::StoreClient(const std::string& host, int port, int rank, int size, std::chrono::milliseconds timeout,
                         std::chrono::milliseconds join_timeout)
    : rank_(rank), deaf_(std::clamp(timeout, kLeastDeaf, kMostDeaf)), socket_(connect_to(host, port, join_timeout)) {
  socket_.send(kHello,
               joined(kRendezvous, joined(tessera_version(), joined(std::to_string(rank), std::to_string(size)))));
  thread_ = std::thread([this] { listen(); });
  std::string refusal;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, join_timeout, [&] { return welcome_ || !refusal_.empty(); });
    if (welcome_) return;
    refusal = refusal_;
  }
  hang_up();
  if (refusal.empty())
    refusal = fmt::format("the server at {}:{} does not answer as rank 0 of this run; give a MASTER_PORT that is free",
                          host, port);
  fail("rendezvous", "{}", refusal);
}

StoreClient::~StoreClient() {
  hang_up();
}

void StoreClient::hang_up() {
  {
    std::lock_guard lock(mutex_);
    hangs_up_ = true;
  }
  socket_.shut();
  thread_.join();
}

void StoreClient::listen() {
  std::string bytes;
  try {
    while (true) {
      end_if_unheard();
      if (!socket_.readable(kStoreLook)) continue;
      if (!socket_.receive(bytes)) break;
      while (auto frame = take_frame(bytes)) take(*frame);
    }
  } catch (const Error& error) {
    std::lock_guard lock(mutex_);
    refusal_ = error.what();
  }
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    if (!welcome_ && refusal_.empty()) refusal_ = "rank 0 left before this rank joined";
    if (!through_)
      add_notice(
          {0, death_notice(
                  "rank 0, which serves the rendezvous, has died: its process or its network ended without notice")});
    changed_.notify_all();
  }
  while (!end_if_unheard()) std::this_thread::sleep_for(kStoreLook);
}

void StoreClient::add_notice(Notice notice) {
  if (!heard_ && !unheard_since_ && is_end_notice(notice.text)) unheard_since_ = std::chrono::steady_clock::now();
  notices_.push_back(std::move(notice));
}

/// A hanging rank does not hear that the run has ended, and nobody else may be there to end it. True if this rank has
/// heard everything.
bool StoreClient::end_if_unheard() {
  std::lock_guard lock(mutex_);
  if (hangs_up_ || !unheard_since_) return true;
  if (std::chrono::steady_clock::now() < *unheard_since_ + deaf_) return false;
  std::fprintf(stderr, "tessera: [gloo] the run has ended, and rank %d has not heard of it for %d ms: it ends, too\n",
               rank_, static_cast<int>(deaf_.count()));
  std::_Exit(static_cast<int>(ErrorKind::running));
}

void StoreClient::take(const Frame& frame) {
  std::lock_guard lock(mutex_);
  if (frame.kind == kValue) {
    auto [key, value] = parted(frame.content);
    values_[key] = std::move(value);
  } else if (frame.kind == kNotice) {
    auto [from, text] = parted(frame.content);
    add_notice({std::atoi(from.c_str()), std::move(text)});
  } else if (frame.kind == kRefused) {
    refusal_ = frame.content;
  } else if (frame.kind == kHello) {
    welcome_ = true;
  } else if (frame.kind == kPing) {
    if (--unanswered_ == 0) left_ranks_ = numbers_in(frame.content);
  } else if (frame.kind == kBye) {
    through_ = true;
  }
  changed_.notify_all();
}

void StoreClient::set(const std::string& key, const std::string& value) {
  std::lock_guard lock(sending_);
  socket_.send(kSet, joined(key, value));
}

std::optional<std::string> StoreClient::get(const std::string& key, std::chrono::milliseconds wait) {
  bool ask = false;
  {
    std::lock_guard lock(mutex_);
    ask = !std::exchange(asked_[key], true);
  }
  if (ask) {
    std::lock_guard lock(sending_);
    socket_.send(kGet, key);
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, wait, [&] { return values_.contains(key) || !notices_.empty(); });
  auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

bool StoreClient::tell(const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
  }
  std::lock_guard lock(sending_);
  return socket_.send(kTell, text);
}

std::optional<Notice> StoreClient::next() {
  std::lock_guard lock(mutex_);
  if (notices_.empty()) return std::nullopt;
  Notice notice = std::move(notices_.front());
  notices_.pop_front();
  if (is_end_notice(notice.text)) heard_ = true, unheard_since_.reset();
  return notice;
}

std::optional<Notice> StoreClient::end() {
  std::lock_guard lock(mutex_);
  auto found = std::find_if(notices_.begin(), notices_.end(), [](const Notice& n) { return is_end_notice(n.text); });
  return found == notices_.end() ? std::nullopt : std::optional(*found);
}

void StoreClient::ask_carrier() {
  {
    std::lock_guard lock(mutex_);
    ++unanswered_;
    left_ranks_.reset();
  }
  std::lock_guard lock(sending_);
  socket_.send(kPing, "");
}

std::optional<std::vector<int>> StoreClient::carrier_answer() {
  std::lock_guard lock(mutex_);
  return left_ranks_;
}

void StoreClient::farewell(std::chrono::milliseconds wait) {
  {
    std::lock_guard lock(sending_);
    socket_.send(kBye, "");
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, wait, [&] { return through_ || !notices_.empty(); });
}

}  // namespace tessera::comm
