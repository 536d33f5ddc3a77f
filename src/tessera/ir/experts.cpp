#include "tessera/ir/experts.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kGated = {"no", "apart", "halves", "interleaved"};  // in enumerators' order

}  // namespace

Gated gated_of(const Node& node) {
  const std::string gated = node.get_string("gated", "no");
  const auto found = std::find(kGated.begin(), kGated.end(), gated);
  if (found == kGated.end())
    fail("shape", "{}: its attribute gated is '{}'; it may be no, apart, halves or interleaved", node.label(), gated);
  return static_cast<Gated>(found - kGated.begin());
}

std::string_view name_of(Gated gated) {
  return kGated.at(static_cast<size_t>(gated));
}

}  // namespace tessera
