#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>

#include "tessera/cli/console.h"

namespace tessera::cli {

/// --timeout, --join-timeout, --spawn, --engine, --share-memory, --flight-record: ranks that are processes, how long
/// they wait for one another, and what is left of them when they fail.
struct LaunchOptions {
  void declare(CLI::App& app);
  /// Comes before all else that a command does. If this process is to start ranks, it does, waits for their end, and
  /// returns the command's exit code; each of them comes here again and is connected to the others
  /// (console.connection). Nothing, if the command is to go on. `threads` of each rank, 0: the cores divided among the
  /// machine's ranks.
  /// `command`: what all ranks must do alike, in words.
  std::optional<int> begin(Console& console, int threads, const std::string& command) const;
  std::chrono::milliseconds waits() const;
  std::optional<std::chrono::milliseconds> joins() const;
  /// The file for the flight record of all ranks of this process and of those that it starts; "": none.
  std::string flight_record_path() const;
  /// The file for this process' flight record; "" where the process that started it writes that of all ranks.
  std::string flight_record_of(const Console& console) const;

  int spawn = 0;
  std::string engine = "auto";
  bool share_memory = false;
  double timeout = 60;
  std::optional<double> join_timeout;        // seconds
  std::optional<std::string> flight_record;  // else one of this process' own in the system's temporary folder
};

}  // namespace tessera::cli
