#pragma once

#include <cstdint>

namespace tessera::cli {

/// The most bytes by which this process has grown, but for pages of files, which the system may drop and read again.
/// What it holds between pause() and go_on() does not count.
class ResidentPeak {
 public:
  /// Begins here.
  ResidentPeak();
  void pause();
  void go_on();
  /// Until the last pause; 0: the system does not say.
  int64_t bytes() const { return peak_; }

 private:
  int64_t before_ = 0, peak_ = 0;
};

}  // namespace tessera::cli
