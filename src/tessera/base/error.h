#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

/// Whose fault an error is; the command line's exit code is the enumerator's value.
enum class ErrorKind {
  user = 2,     ///< The caller's model, mesh, annotation, input or path is wrong; the message says how to mend it.
  running = 3,  ///< Something failed while a correct program ran (a rank died, memory ran out, a broken invariant).
};

/// What every part of Tessera throws. `what()` reads "[stage] message": the place first, then the mend.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string_view stage, std::string_view message)
      : std::runtime_error(fmt::format("[{}] {}", stage, message)), kind_(kind) {}

  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

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
