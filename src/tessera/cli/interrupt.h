#pragma once

#include <functional>
#include <string>

namespace tessera::cli {

/// From now on SIGINT and SIGTERM end the process at once, as they do by default, but first remove unfinished files and
/// end the ranks that it has started.
/// Call this before any other thread starts. Ignored signals stay ignored.
void end_cleanly_when_interrupted();

/// Sets the text to print on standard error before that, given the signal's name; "": none. The last call counts.
void say_when_interrupted(std::function<std::string(const std::string& signal)> words);

}  // namespace tessera::cli
