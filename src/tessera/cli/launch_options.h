#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>

#include "tessera/cli/console.h"

namespace tessera::cli {

/// --timeout, --join-timeout, --spawn, --engine, --share-memory, --flight-record: how ranks in processes start, how
/// long they wait for one another, and what they record when they fail.
struct LaunchOptions {
  void declare(CLI::App& app);
  /// A command calls this first. If this process must start ranks, starts them, waits for their end, and returns the
  /// command's exit code; each rank comes here again and is connected to the others (console.connection). Returns
  /// nullopt if the command goes on. `threads`: of each rank; 0: the cores divided among the machine's ranks.
  /// `command`: a description of the command and options that all ranks must share.
  std::optional<int> begin(Console& console, int threads, const std::string& command) const;
  std::chrono::milliseconds waits() const;
  std::optional<std::chrono::milliseconds> joins() const;
  /// The file for the flight record of all ranks of this process and of those that it starts; "": none.
  std::string flight_record_path() const;
  /// The file for this process' flight record; "" if the process that started it writes the record of all ranks.
  std::string flight_record_of(const Console& console) const;

  int spawn = 0;
  std::string engine = "auto";
  bool share_memory = false;
  double timeout = 60;
  std::optional<double> join_timeout;        // seconds
  std::optional<std::string> flight_record;  // not set: a file of this process in the system's temporary folder
};

}  // namespace tessera::cli
