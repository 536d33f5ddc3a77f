#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "tessera/ir/flow.h"

namespace tessera::flow {

/// What a node is in its branch or loop (flow.h).
enum class Role : uint8_t { none, loop, carry, item, next, again, last, stack, branch, bring, join, choose };

inline Role role_of(const Node& node) {
  static constexpr std::array<std::pair<std::string_view, Role>, 11> kRoles{{{"Loop", Role::loop},
                                                                            {"Carry", Role::carry},
                                                                            {"Item", Role::item},
                                                                            {"Next", Role::next},
                                                                            {"Again", Role::again},
                                                                            {"Last", Role::last},
                                                                            {"Stack", Role::stack},
                                                                            {"Branch", Role::branch},
                                                                            {"Bring", Role::bring},
                                                                            {"Join", Role::join},
                                                                            {"Choose", Role::choose}}};
  if (node.domain != kDomain) return Role::none;
  for (const auto& [name, role] : kRoles)
    if (node.op_type == name) return role;
  return Role::none;
}

}  // namespace tessera::flow
