#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A number in a name: the characters from `begin` to before `end`.
struct LoneNumber {
  size_t begin = 0, end = 0;
};
/// The numbers that are words of their own, as those of layers: 12 and 3 of "h.12.attn_3", none of "fc1".
std::vector<LoneNumber> lone_numbers(std::string_view name);

}  // namespace tessera
