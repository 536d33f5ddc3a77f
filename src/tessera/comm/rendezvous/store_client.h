#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/comm/remote/watch.h"
#include "tessera/comm/rendezvous/frames.h"

namespace tessera::comm {

/// One rank's connection to the store of its run. Safe to call from several threads.
class StoreClient : public Notices {
 public:
  /// Throws a running error if nobody serves the store before the join timeout, and a user error if this rank cannot
  /// take part in the run that the store serves. Once the run has ended, the rank hears of it within the timeout.
  StoreClient(const std::string& host, int port, int rank, int size, std::chrono::milliseconds timeout,
              std::chrono::milliseconds join_timeout);
  ~StoreClient() override;

  void set(const std::string& key, const std::string& value);
  /// The key's value; nullopt if it is not set within `wait`.
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds wait);

  bool tell(const std::string& text) override;
  std::optional<Notice> next() override;
  std::optional<Notice> end() override;
  int carrier() const override { return 0; }
  void ask_carrier() override;
  std::optional<std::vector<int>> carrier_answer() override;

  /// Says that this rank has finished, and waits at most `wait` for all others to say so.
  void farewell(std::chrono::milliseconds wait);

  /// This machine's address on the way to the store.
  std::string local_address() const { return socket_.local_address(); }

 private:
  void listen();
  void hang_up();
  void take(const Frame& frame);
  void add_notice(Notice notice);
  bool end_if_unheard();

  const int rank_;
  const std::chrono::milliseconds deaf_;  // how long this rank may stay deaf after the run has ended
  Socket socket_;
  std::mutex sending_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, bool> asked_;
  std::deque<Notice> notices_;
  std::optional<std::chrono::steady_clock::time_point> unheard_since_;  // the first notice that the run has ended
  bool heard_ = false;                                                  // this rank has heard of the end
  bool hangs_up_ = false;
  bool closed_ = false;  // the connection is closed
  bool welcome_ = false;
  std::string refusal_;
  bool through_ = false;                        // all ranks have finished
  int unanswered_ = 0;                          // of our pings
  std::optional<std::vector<int>> left_ranks_;  // by the last answer
  std::thread thread_;
};

}  // namespace tessera::comm
