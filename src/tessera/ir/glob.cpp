#include "tessera/ir/glob.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace tessera {

bool glob_matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// The number of edits that make `name` match `pattern`, whose stars cost nothing. Ignores case.
size_t edit_distance(std::string_view pattern, std::string_view name) {
  std::vector<size_t> row(name.size() + 1);  // edits for the pattern so far, by the matched length of the name
  std::iota(row.begin(), row.end(), 0);
  for (const char wanted : pattern) {
    const bool star = wanted == '*';
    size_t diagonal = row[0];
    if (!star) ++row[0];
    for (size_t n = 1; n <= name.size(); ++n) {
      const size_t above = row[n];
      row[n] = star ? std::min(above, row[n - 1])
                    : std::min({above + 1, row[n - 1] + 1, diagonal + (lower(wanted) != lower(name[n - 1]))});
      diagonal = above;
    }
  }
  return row[name.size()];
}

std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

}  // namespace

std::string nearest_names(const std::vector<std::string_view>& names, std::string_view wanted) {
  constexpr size_t kMost = 3, kLongest = 300;  // differences in longer names are not typing errors
  if (wanted.size() > kLongest) return "";
  const auto letters =
      static_cast<size_t>(std::count_if(wanted.begin(), wanted.end(), [](char c) { return c != '*'; }));
  const std::string within = fmt::format("*{}*", wanted);
  std::vector<std::pair<size_t, std::string_view>> near;  // by distance
  for (std::string_view name : names) {
    if (name.empty() || name.size() > kLongest) continue;
    const size_t whole = edit_distance(wanted, name), part = edit_distance(within, name);
    size_t distance = std::string::npos;
    if (whole <= letters / 2) distance = whole;
    if (part <= letters / 3)
      distance = std::min(distance, part + 1);  // a matching part is slightly worse than a whole match
    if (distance != std::string::npos) near.emplace_back(distance, name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> best;
  for (const auto& [distance, name] : near)
    if (best.size() < kMost && distance <= near.front().first + 1 &&
        std::find(best.begin(), best.end(), name) == best.end())
      best.push_back(name);
  return best.empty() ? "" : fmt::format("; did you mean {}?", listed(best));
}

std::vector<std::string_view> tensor_names(const Graph& graph) {
  std::vector<std::string_view> names;
  for (const Value* state : graph.values_of(ValueKind::state)) names.push_back(state->name);
  for (const auto* ports : {&graph.inputs, &graph.outputs})
    for (const Value* port : *ports) names.push_back(port->name);
  for (const Value* result : graph.values_of(ValueKind::result)) names.push_back(result->name);
  return names;
}

}  // namespace tessera
