#pragma once

#include <fmt/format.h>

#include <source_location>
#include <string_view>

#include "tessera/error.h"

namespace tessera {

/// Throws a user error from `stage` (a folder or pass name such as "import" or "annotate").
template <typename... Args>
[[noreturn]] void fail(std::string_view stage, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::user, stage, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws a failure that happened while a program ran.
template <typename... Args>
[[noreturn]] void fail_running(std::string_view stage, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::running, stage, fmt::format(format, std::forward<Args>(args)...));
}

/// An invariant of our own code; stays on in release builds. Throws ErrorKind::running with the source line.
inline void check(bool holds, std::string_view invariant,
                  std::source_location where = std::source_location::current()) {
  if (!holds)
    fail_running("internal", "{}:{}: {} does not hold; this is a bug in tessera", where.file_name(), where.line(),
                 invariant);
}

}  // namespace tessera
