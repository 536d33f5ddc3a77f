#pragma once

#include <string>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/profile.h"
#include "tessera/time.h"

namespace tessera::cli {

/// Trace events in Chrome's JSON form, which Perfetto reads: one track per rank, one run after the other.
class Trace {
 public:
  /// `process`: traces with different numbers can be shown together.
  explicit Trace(std::string title, int process = 0) : title_(std::move(title)), process_(process) {}
  /// Of a step; a track stands for a class of ranks.
  static Trace predicted(const Prediction& prediction, const std::string& machine, int process = 0);

  /// `begin`: of the run, in microseconds.
  void add(const Profile& profile, double begin);
  /// What `tessera whatif` asks for beside the events: the program that ran, as recorded_program() says it
  /// (what_if.h), and recorded_command().
  void record(const std::string& program, const Json& command);
  bool empty() const { return events_.empty(); }
  Json events() const;
  void write(const std::string& path) const;

 private:
  std::string title_;
  int process_;
  std::vector<Json> events_;
  Json runs_ = Json::array();
  Json recorded_ = Json::object();
  std::vector<std::string> tracks_;
};

}  // namespace tessera::cli
