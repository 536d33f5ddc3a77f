#pragma once

#include <optional>
#include <string>

namespace tessera::compiler {

/// "w*=next.w*": two names, each with one '*' or both without.
struct Pairing {
  std::string state;
  std::optional<std::string> next;

  /// Throws a user error for anything else.
  static Pairing parse(const std::string& text);

  /// The name of the next value of the matching state `name`.
  std::string next_of(const std::string& name) const;
};

}  // namespace tessera::compiler
