#include "tessera/ops/rule.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"

namespace tessera::ops {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  size_t start = 0;
  while (true) {
    size_t end = text.find(separator, start);
    pieces.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return pieces;
    start = end + 1;
  }
}

// "b (h w) 1" → {{b}, {h, w}, {}}
std::vector<std::vector<std::string>> read_dims(std::string_view text) {
  std::vector<std::vector<std::string>> dims;
  bool grouped = false;
  std::string word;
  auto flush = [&] {
    if (word.empty()) return;
    if (!grouped) dims.emplace_back();
    if (word != "1") dims.back().push_back(word);
    word.clear();
  };
  for (char c : text) {
    if (c == '(') {
      grouped = true;
      dims.emplace_back();
    } else if (c == ')') {
      flush();
      grouped = false;
    } else if (c == ' ') {
      flush();
    } else {
      word += c;
    }
  }
  flush();
  return dims;
}

}  // namespace

const FactorTraits& traits_of(FactorKind kind) {
  // In the order of the enumerators.
  static constexpr std::array<FactorTraits, 17> kTraits = {{
      {.name = "pass"},
      {.name = "reduction", .in_result = InResult::partial, .level = 2},
      {.name = "lookup",
       .in_result = InResult::partial,
       .level = 2,
       .one_interval = true,
       .own_form = true,
       .scores = true},
      {.name = "index", .one_interval = true},
      {.name = "position", .one_interval = true, .own_form = true},
      {.name = "target", .level = 2, .one_interval = true, .own_form = true, .follows_use = true, .scores = true},
      {.name = "update", .in_result = InResult::partial, .level = 2, .priced = true},
      {.name = "norm", .level = 2, .own_form = true, .scores = true, .reductions = 2},
      {.name = "moment", .level = 2, .own_form = true, .reductions = 2},
      {.name = "winner", .level = 2, .one_interval = true, .own_form = true, .scores = true, .reductions = 2},
      {.name = "top", .level = 2, .one_interval = true, .own_form = true, .scores = true, .gathers = 3},
      {.name = "scan", .level = 2, .one_interval = true, .own_form = true, .gathers = 1},
      {.name = "total", .level = 2, .own_form = true, .gathers = 1},
      {.name = "units", .level = 2, .one_interval = true, .own_form = true, .regathers = true},
      {.name = "halo", .level = 2, .one_interval = true, .own_form = true, .by_window = true},
      {.name = "weighted",
       .in_result = InResult::partial,
       .level = 2,
       .one_interval = true,
       .own_form = true,
       .reductions = 2},
      {.name = "whole", .in_result = InResult::whole},
  }};
  static_assert(kTraits.size() == static_cast<size_t>(FactorKind::whole) + 1 && kTraits.back().name == "whole");
  return kTraits[static_cast<size_t>(kind)];
}

Interval Window::reads(const Expr& begin, const Expr& end, const Expr& size) const {
  const Expr least = times < 0 ? end - 1 : begin, most = times < 0 ? begin : end - 1;
  Expr from = floordiv(least * times + first, over), to = floordiv(most * times + last, over) + 1;
  if (beyond == Beyond::nearest) {
    from = min(max(from, 0), max(0, size - 1));
    to = max(min(to, size), min(1, size));
  } else if (beyond == Beyond::mirrored) {
    // Element -c is element c, and size - 1 + c is size - 1 - c.
    const Expr before = from;
    from = max(0, min(before, 2 * size - 1 - to));
    to = min(size, max(to, 1 - before));
  }
  return {from, from + min(1, end - begin) * (to - from)};
}

int Rule::add(std::string name, Expr size, FactorKind kind, Reduction reduction) {
  factors.push_back({std::move(name), std::move(size), kind, reduction, {}});
  return static_cast<int>(factors.size()) - 1;
}

int Rule::add_halo(std::string name, Expr size, Window window) {
  const int index = add(std::move(name), std::move(size), FactorKind::halo);
  factors.back().windows[0] = std::move(window);
  return index;
}

Rule Rule::parse(std::string_view line, const std::vector<const Shape*>& operand_shapes,
                 const std::vector<const Shape*>& result_shapes) {
  Rule rule;
  size_t arrow = line.find("->");
  check(arrow != std::string_view::npos, "a rule has an arrow");
  auto index_of = [&](const std::string& name) {
    for (size_t i = 0; i < rule.factors.size(); ++i)
      if (rule.factors[i].name == name) return static_cast<int>(i);
    return rule.add(name, Expr(-1));
  };
  auto read_side = [&](std::string_view side, const std::vector<const Shape*>& shapes, auto& into) {
    std::vector<std::string> tensors = split(side, ',');
    for (size_t t = 0; t < tensors.size(); ++t) {
      into.emplace_back();
      if (tensors[t].find('_') != std::string::npos) continue;
      for (const auto& names : read_dims(tensors[t])) {
        DimFactors dim;
        for (const std::string& name : names) dim.push_back(index_of(name));
        const Shape* shape = t < shapes.size() ? shapes[t] : nullptr;
        size_t d = into.back().size();
        if (dim.size() == 1 && shape && d < shape->size() && rule.factors[dim[0]].size.is(-1))
          rule.factors[dim[0]].size = (*shape)[d];
        into.back().push_back(std::move(dim));
      }
      if (t < shapes.size() && shapes[t])
        check(into.back().size() == shapes[t]->size(), fmt::format("rule '{}' has the operand's rank", line));
    }
  };
  read_side(line.substr(0, arrow), operand_shapes, rule.operands);
  read_side(line.substr(arrow + 2), result_shapes, rule.results);
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    auto holds = [&](const auto& tensors) {
      for (const auto& dims : tensors)
        for (const DimFactors& dim : dims)
          if (std::find(dim.begin(), dim.end(), static_cast<int>(f)) != dim.end()) return true;
      return false;
    };
    if (!holds(rule.results)) rule.factors[f].kind = FactorKind::reduction;
  }
  return rule;
}

Factor& Rule::factor(std::string_view name) {
  for (Factor& factor : factors)
    if (factor.name == name) return factor;
  check(false, fmt::format("the rule has a factor '{}'", name));
  return factors.front();
}

Rule& Rule::kind(std::string_view name, FactorKind kind, Reduction reduction) {
  factor(name).kind = kind;
  factor(name).reduction = reduction;
  return *this;
}

Rule& Rule::partial(Reduction reduction, std::vector<int> operands_together, std::vector<int> finite) {
  partials.push_back({reduction, std::move(operands_together), std::move(finite)});
  return *this;
}

std::string Rule::str() const {
  auto side = [&](const std::vector<std::vector<DimFactors>>& tensors) {
    std::string text;
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (t) text += ", ";
      for (size_t d = 0; d < tensors[t].size(); ++d) {
        const DimFactors& dim = tensors[t][d];
        std::string names;
        for (int f : dim) names += (names.empty() ? "" : " ") + factors[f].name;
        if (d) text += " ";
        text += dim.empty() ? "1" : dim.size() == 1 ? names : "(" + names + ")";
      }
    }
    return text;
  };
  std::string text = side(operands) + " -> " + side(results);
  std::string special;
  for (const Factor& factor : factors) {
    if (factor.kind == FactorKind::pass) continue;
    const std::string_view kind =
        factor.kind == FactorKind::reduction ? name_of(factor.reduction) : traits_of(factor.kind).name;
    special += fmt::format("{}{}: {}", special.empty() ? " | " : ", ", factor.name, kind);
  }
  return text + special;
}

}  // namespace tessera::ops
