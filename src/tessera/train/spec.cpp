#include "tessera/train/spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "tessera/base/error.h"

namespace tessera::train {

Spec::Spec(std::string_view text, std::string_view stage) : stage_(stage) {
  const size_t colon = text.find(':');
  name_ = text.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    const std::string_view key = entry.substr(0, equals);
    std::string_view value = equals == std::string_view::npos ? "" : entry.substr(equals + 1);
    double number = value == "true" ? 1 : 0;
    if (value != "true" && value != "false") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (key.empty() || value.empty() || error != std::errc() || end != value.data() + value.size())
        fail(stage_, "'{}' in '{}' is not KEY=NUMBER; write for example '{}:{}=0.1'", entry, text, name_,
             key.empty() ? "key" : key);
    }
    if (!numbers_.emplace(key, number).second) fail(stage_, "'{}' gives '{}' twice; give it once", text, key);
  }
}

bool Spec::has(std::string_view key) const {
  return numbers_.find(key) != numbers_.end();
}

double Spec::number(std::string_view key, double otherwise) {
  asked_.emplace_back(key);
  const auto found = numbers_.find(key);
  return found == numbers_.end() ? otherwise : found->second;
}

void Spec::finish() const {
  for (const auto& [key, number] : numbers_)
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
      fail(stage_, "'{}' has no '{}'; {}", name_, key,
           asked_.empty() ? "it takes nothing" : fmt::format("it takes {}", fmt::join(asked_, ", ")));
}

}  // namespace tessera::train
