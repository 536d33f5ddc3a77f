#pragma once

#include <string>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/profile.h"

namespace tessera::cli {

/// Trace events in Chrome's JSON form, which Perfetto reads: one track per rank, one run after the other.
class Trace {
 public:
  /// `begin`: of the run, in microseconds.
  void add(const Profile& profile, double begin);
  /// What `tessera whatif` asks for beside the events: the program that ran, as recorded_program() says it
  /// (what_if.h), and recorded_command().
  void record(const std::string& program, const Json& command);
  void write(const std::string& path) const;

 private:
  std::vector<Json> events_;
  Json runs_ = Json::array();
  Json recorded_ = Json::object();
  size_t ranks_ = 0;
};

}  // namespace tessera::cli
