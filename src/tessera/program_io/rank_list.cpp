#include <charconv>

#include "tessera/base/error.h"
#include "tessera/program_io/manifest.h"

namespace tessera::program_io {

std::string print_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text;
}

std::optional<std::vector<int>> parse_ranks(std::string_view text, int64_t count) {
  std::vector<int> ranks;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  auto number = [&]() -> std::optional<int> {
    int value = 0;
    auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value >= count) return std::nullopt;
    at = stop;
    return value;
  };
  while (true) {
    auto first = number(), last = first;
    if (first && at != end && *at == '-') {
      ++at;
      last = number();
    }
    if (!first || !last || *last < *first || (!ranks.empty() && *first <= ranks.back())) return std::nullopt;
    for (int rank = *first; rank <= *last; ++rank) ranks.push_back(rank);
    if (at == end) return ranks;
    if (*at++ != ',') return std::nullopt;
  }
}

}  // namespace tessera::program_io
