#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace tessera::cli {

/// The most bytes by which this process has grown, but for pages of files, which the system may drop and read again.
/// What it holds between pause() and go_on() does not count.
///
/// The system knows the peak of all pages only. While weights are loaded, pages of their files come and go, so until
/// the first pause() a thread looks what there is of other pages, every other millisecond. Later on they stay.
class ResidentPeak {
 public:
  /// Begins here.
  ResidentPeak();
  ~ResidentPeak() { stop_looking(); }
  ResidentPeak(const ResidentPeak&) = delete;
  void pause();
  void go_on();
  /// Until the last pause; 0: the system does not say.
  int64_t bytes() const { return peak_; }

 private:
  void look_on();
  void stop_looking();

  int64_t before_ = 0, peak_ = 0;
  std::atomic<int64_t> seen_ = 0;
  std::atomic<bool> looks_ = true;
  std::thread looking_;
};

}  // namespace tessera::cli
