#include "tessera/base/lone_numbers.h"

#include <cctype>

namespace tessera {

std::vector<LoneNumber> lone_numbers(std::string_view name) {
  const auto is_digit = [&](size_t at) { return std::isdigit(static_cast<unsigned char>(name[at])) != 0; };
  const auto is_letter = [&](size_t at) { return std::isalpha(static_cast<unsigned char>(name[at])) != 0; };
  std::vector<LoneNumber> all;
  for (size_t begin = 0; begin < name.size(); ++begin) {
    if (!is_digit(begin)) continue;
    size_t end = begin;
    while (end < name.size() && is_digit(end)) ++end;
    if ((begin == 0 || !is_letter(begin - 1)) && (end == name.size() || !is_letter(end))) all.push_back({begin, end});
    begin = end;
  }
  return all;
}

}  // namespace tessera
