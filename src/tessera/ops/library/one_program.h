#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ir/graph.h"

namespace tessera::ops {

/// Why no single program can hold a model, as far as running it in parts helps (parts/segments.h).
struct Needs {
  std::vector<std::string> regions;  ///< an If, Loop or Scan that must run between programs, by its first result, and
                                     ///< those around it
  std::string value;                 ///< whose elements a program must compute before another is compiled; "": none
  std::set<std::string> symbols;     ///< that must be numbers before it is compiled
};

/// A user error of a sound model that no single program can hold. Without needs, parts do not help either.
class NotInOneProgram : public Error {
 public:
  NotInOneProgram(std::string_view stage, const Node& node, std::string_view message, Needs needs = {})
      : Error(ErrorKind::user, stage, fmt::format("{}: {}", node.label(), message)), needs_(std::move(needs)) {}

  const Needs& needs() const { return needs_; }
  /// The same for what is in a branch or body: that region runs between programs, whatever it needs itself.
  NotInOneProgram within(const std::string& region) const {
    NotInOneProgram outer = *this;
    outer.needs_.value.clear();
    outer.needs_.regions.push_back(region);
    return outer;
  }

 private:
  Needs needs_;
};

}  // namespace tessera::ops
