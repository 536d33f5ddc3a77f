#pragma once

#include <functional>
#include <string>

namespace tessera::cli {

/// From now on SIGINT, SIGTERM and SIGUSR1 end the process at once, as they do by default, but first remove unfinished
/// files and end the ranks that it has started. Call this before any other thread starts. Ignored signals stay ignored.
void end_cleanly_when_interrupted();

/// From now on a mapped file that has become shorter (mapped_file_at) is no SIGBUS, but ends the process after
/// `fails` has been called with a message, on a thread of its own.
void fail_when_files_shrink(std::function<void(const std::string& message)> fails);

/// Sets the text to print on standard error before that, given the signal's name; "": none. The last call counts.
void say_when_interrupted(std::function<std::string(const std::string& signal)> words);

/// For launchers that kill a process soon after they have told it to end: if a SIGTERM was taken (see below), and
/// `place` still answers the same and not "" after half a second, then the words above are said while there is time.
void say_when_stuck(std::function<std::string()> place);

/// From now on asks `takes` first, on a thread of its own: if it returns true, the signal has been dealt with, and the
/// process goes on. Null: no further words.
void take_signals(std::function<bool(int signal)> takes);

}  // namespace tessera::cli
