#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string_view>
#include <vector>

#include "tessera/cli/console.h"

namespace tessera::cli {

/// Exit codes, one meaning each.
inline constexpr int kGood = 0;     ///< done
inline constexpr int kNo = 1;       ///< the answer is no
inline constexpr int kMistake = 2;  ///< a user error; no output is half written
inline constexpr int kFailed = 3;   ///< while running
inline constexpr int kStopped = 4;  ///< stopped by SIGTERM or SIGUSR1, after progress was saved

/// One subcommand: its options, and its work.
class Command {
 public:
  virtual ~Command() = default;
  virtual void declare(CLI::App& app) = 0;
  /// Returns the exit code; throws tessera::Error.
  virtual int run(Console& console) = 0;
};

struct CommandEntry {
  std::string_view name;
  std::string_view description;
  std::unique_ptr<Command> (*make)();
  std::vector<const char*> first;  ///< the options that people use first, at most ten: --help shows them on top
};

/// The one visible list of commands: each file provides one.
const std::vector<CommandEntry>& commands();

std::unique_ptr<Command> make_inspect();    // inspect.cpp
std::unique_ptr<Command> make_run();        // run.cpp
std::unique_ptr<Command> make_generate();   // generate.cpp
std::unique_ptr<Command> make_train();      // train.cpp
std::unique_ptr<Command> make_shard();      // shard.cpp
std::unique_ptr<Command> make_annotate();   // annotate.cpp
std::unique_ptr<Command> make_infer();      // annotate.cpp
std::unique_ptr<Command> make_verify();     // verify.cpp
std::unique_ptr<Command> make_check();      // check.cpp
std::unique_ptr<Command> make_bench();      // bench.cpp
std::unique_ptr<Command> make_explain();    // explain.cpp
std::unique_ptr<Command> make_simulate();   // simulate.cpp
std::unique_ptr<Command> make_plan();       // plan.cpp
std::unique_ptr<Command> make_calibrate();  // calibrate.cpp
std::unique_ptr<Command> make_whatif();     // whatif.cpp
std::unique_ptr<Command> make_schedule();   // schedule.cpp
std::unique_ptr<Command> make_report();     // report.cpp
std::unique_ptr<Command> make_info();       // info.cpp

}  // namespace tessera::cli
