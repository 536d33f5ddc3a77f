#include "tessera/plan/tensor_kinds.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "tessera/base/lone_numbers.h"
#include "tessera/ir/glob.h"

namespace tessera::plan {
namespace {

// The numbers that are components of the name, or the first one if none is, become `*`.
std::string pattern_of(const std::string& name) {
  const auto separates = [&](size_t at) { return name[at] == '.' || name[at] == '/'; };
  const auto is_component = [&](const LoneNumber& number) {
    return (number.begin == 0 || separates(number.begin - 1)) && (number.end == name.size() || separates(number.end));
  };
  std::vector<LoneNumber> numbers = lone_numbers(name), components;
  std::copy_if(numbers.begin(), numbers.end(), std::back_inserter(components), is_component);
  if (components.empty() && !numbers.empty()) components = {numbers.front()};
  std::string pattern = name;
  for (auto number = components.rbegin(); number != components.rend(); ++number)
    pattern.replace(number->begin, number->end - number->begin, "*");
  // What begins or ends with `*` may also match results.
  return pattern.empty() || pattern.front() == '*' || pattern.back() == '*' ? name : pattern;
}

// In the exported model, where it is or copies one parameter.
const std::string& exported_name(const WeightInfo& parameter) {
  return parameter.sources.size() == 1 ? parameter.sources.front() : parameter.tensor.name;
}

bool matches(std::string_view pattern, const WeightInfo& parameter) {
  return glob_matches(pattern, parameter.tensor.name) ||
         std::any_of(parameter.sources.begin(), parameter.sources.end(),
                     [&](const std::string& source) { return glob_matches(pattern, source); });
}

std::vector<int64_t> extents_of(const WeightInfo& parameter) {
  std::vector<int64_t> extents;
  for (const std::string& extent : parameter.tensor.shape) extents.push_back(std::atoll(extent.c_str()));
  return extents;
}

// A pattern may match more than the names that it was made from: `h.*.w` matches "h.0.mlp.w".
bool fits_all(const std::string& pattern, const std::vector<WeightInfo>& parameters,
              const std::vector<int64_t>& extents) {
  return std::all_of(parameters.begin(), parameters.end(), [&](const WeightInfo& each) {
    return each.tensor.shape.size() != extents.size() || !matches(pattern, each) ||
           (pattern_of(exported_name(each)) == pattern && extents_of(each) == extents);
  });
}

bool is_annotated(const WeightInfo& parameter, const Plan& fixed) {
  return std::any_of(fixed.annotations.begin(), fixed.annotations.end(), [&](const Plan::Annotation& each) {
    return matches(each.text.substr(0, each.text.rfind("=[")), parameter);
  });
}

}  // namespace

std::vector<TensorKind> kinds_of(const std::vector<WeightInfo>& parameters, const Plan& fixed) {
  std::vector<TensorKind> kinds;
  std::map<std::string, size_t> known;  // by pattern
  for (const WeightInfo& each : parameters) {
    if (each.tensor.shape.size() < 2 || is_annotated(each, fixed)) continue;
    const std::vector<int64_t> extents = extents_of(each);
    std::string pattern = pattern_of(exported_name(each));
    if (!fits_all(pattern, parameters, extents)) pattern = each.tensor.name;
    const auto [at, added] = known.try_emplace(pattern, kinds.size());
    if (added) kinds.push_back({pattern, {}, extents, 0});
    kinds[at->second].names.push_back(each.tensor.name);
    kinds[at->second].bytes += each.bytes;
  }
  for (TensorKind& kind : kinds)
    if (kind.names.size() == 1) kind.pattern = kind.names.front();
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const TensorKind& a, const TensorKind& b) { return a.bytes > b.bytes; });
  return kinds;
}

Entries::Entries(std::string_view layout, size_t dims) {
  std::vector<Entry> read(1);
  bool in_axes = false;
  for (const char c : layout.substr(0, layout.rfind(']'))) {
    if (c == '[' || c == ' ') continue;
    if (c == '{') read.back().axes.emplace_back();
    if (in_axes && c == ',')
      read.back().axes.emplace_back();
    else if (in_axes && c != '}')
      read.back().axes.back() += c;
    if (c == '{' || c == '}') in_axes = c == '{';
    if (c == ',' && !in_axes)
      read.emplace_back();
    else
      read.back().text += c;
  }
  entries_ = layout.empty() || read.size() != dims ? std::vector<Entry>(dims, {"-", {}}) : std::move(read);
}

int Entries::dim_of(std::string_view axis) const {
  for (size_t d = 0; d < entries_.size(); ++d)
    for (const std::string& each : entries_[d].axes)
      if (each.substr(0, each.find(':')) == axis) return static_cast<int>(d);
  return -1;
}

Entries Entries::moved(const std::string& axis, int dim) const {
  Entries made = *this;
  for (size_t d = 0; d < made.entries_.size(); ++d) {
    Entry& entry = made.entries_[d];
    const size_t removed =
        std::erase_if(entry.axes, [&](const std::string& each) { return each.substr(0, each.find(':')) == axis; });
    const bool added = static_cast<int>(d) == dim;
    if (added) entry.axes.push_back(axis);
    if (removed == 0 && !added) continue;
    entry.text.clear();
    for (const std::string& each : entry.axes) entry.text += (entry.text.empty() ? "" : ",") + each;
    if (entry.axes.empty()) entry.text = "-";
    if (entry.axes.size() > 1) entry.text = "{" + entry.text + "}";
  }
  return made;
}

std::string Entries::str() const {
  std::string text;
  for (const Entry& entry : entries_) text += (text.empty() ? "[" : ",") + entry.text;
  return text + "]";
}

}  // namespace tessera::plan
