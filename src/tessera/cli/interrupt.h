#pragma once

#include <functional>
#include <string>

namespace tessera::cli {

/// From now on SIGINT and SIGTERM end the process at once, as they do by themselves, but take away what it was writing
/// and the ranks that it has started.
/// To be called before any other thread is started. Signals that are ignored stay so.
void end_cleanly_when_interrupted();

/// What is to be said on standard error before that, given the signal's name; "": nothing. The last call counts.
void say_when_interrupted(std::function<std::string(const std::string& signal)> words);

}  // namespace tessera::cli
