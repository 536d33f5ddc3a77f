#pragma once

#include <string>

#include "tessera/cli/console.h"
#include "tessera/profile.h"

namespace tessera::cli {

/// Trace events in Chrome's JSON form, which Perfetto reads: one track per rank, one run after the other.
class Trace {
 public:
  /// `begin`: of the run, in microseconds.
  void add(const Profile& profile, double begin);
  void write(const std::string& path) const;

 private:
  std::vector<Json> events_;
  size_t ranks_ = 0;
};

}  // namespace tessera::cli
