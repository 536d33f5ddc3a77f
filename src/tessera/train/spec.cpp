#include "tessera/train/spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "tessera/base/error.h"

namespace tessera::train {

Spec::Spec(std::string_view text, std::string_view stage, bool may_name_tensor) : text_(text), stage_(stage) {
  const size_t colon = text.find(':');
  name_ = text.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos && may_name_tensor && tensor_.empty() && words_.empty() && !entry.empty()) {
      tensor_ = entry;
      continue;
    }
    const std::string_view key = entry.substr(0, equals);
    const std::string_view word = equals == std::string_view::npos ? "" : entry.substr(equals + 1);
    if (key.empty() || word.empty())
      fail(stage_, "'{}' in '{}' is not KEY=NUMBER; write for example '{}:{}=0.1'", entry, text, name_,
           key.empty() ? "key" : key);
    if (!words_.emplace(key, word).second) fail(stage_, "'{}' gives '{}' twice; give it once", text, key);
  }
}

bool Spec::has(std::string_view key) const {
  return words_.find(key) != words_.end();
}

void Spec::refuse(std::string_view key, std::string_view word, const std::string& wanted) const {
  fail(stage_, "'{}={}' in '{}': {} must be {}", key, word, text_, key, wanted);
}

double Spec::number(std::string_view key, double otherwise, const Bounds& bounds) {
  const std::string word = this->word(key, "");
  if (word.empty()) return otherwise;
  const std::optional<double> number = bounds.parse(word);
  if (!number) refuse(key, word, bounds.text());
  return *number;
}

int64_t Spec::whole(std::string_view key, int64_t otherwise, const Bounds& bounds) {
  const std::string word = this->word(key, "");
  if (word.empty()) return otherwise;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || !bounds.hold(static_cast<double>(number)))
    refuse(key, word, bounds.text() + " without a fraction");
  return number;
}

bool Spec::flag(std::string_view key, bool otherwise) {
  const std::string word = this->word(key, otherwise ? "true" : "false");
  if (word == "true" || word == "1") return true;
  if (word != "false" && word != "0") refuse(key, word, "true or false");
  return false;
}

std::string Spec::word(std::string_view key, std::string_view otherwise) {
  asked_.emplace_back(key);
  const auto found = words_.find(key);
  return found == words_.end() ? std::string(otherwise) : found->second;
}

void Spec::finish() const {
  for (const auto& [key, word] : words_)
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
      fail(stage_, "'{}' has no '{}'; {}", name_, key,
           asked_.empty() ? "it has no keys" : fmt::format("its keys are {}", fmt::join(asked_, ", ")));
}

}  // namespace tessera::train
