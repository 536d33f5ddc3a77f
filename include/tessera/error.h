#pragma once

#if __cplusplus < 202002L
#error "Tessera's headers need C++20 or later: compile with -std=c++20"
#endif

#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {
inline namespace v1 {

/// Whose fault an error is; the command line's exit code is the enumerator's value.
enum class ErrorKind {
  user = 2,     ///< The caller's model, mesh, annotation, input or path is wrong; the message says how to fix it.
  running = 3,  ///< Something failed while a correct program ran (a rank died, memory ran out, a broken invariant).
};

/// What every part of Tessera throws. `what()` reads "[stage] message": the place first, then the fix.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string_view stage, std::string_view message)
      : std::runtime_error(std::string("[").append(stage).append("] ").append(message)),
        kind_(kind),
        stage_(stage.size()) {}

  ErrorKind kind() const { return kind_; }
  /// The place: "import", "annotate".
  std::string_view stage() const { return std::string_view(what()).substr(1, stage_); }
  /// what() without the place.
  std::string_view message() const { return std::string_view(what()).substr(stage_ + 3); }

 private:
  ErrorKind kind_;
  size_t stage_;
};

}  // namespace v1
}  // namespace tessera
