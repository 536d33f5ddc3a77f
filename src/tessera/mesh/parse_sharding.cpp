#include <algorithm>
#include <charconv>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/trim.h"
#include "tessera/mesh/group.h"
#include "tessera/mesh/sharding.h"

namespace tessera {
namespace {

// Pieces between separators that are not inside braces or parentheses.
std::vector<std::string_view> split_outside(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> pieces;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '(') ++depth;
    if (text[i] == '}' || text[i] == ')') --depth;
    if (depth == 0 && text.substr(i).starts_with(separator)) {
      pieces.push_back(trim(text.substr(start, i - start)));
      start = i + separator.size();
    }
  }
  pieces.push_back(trim(text.substr(start)));
  return pieces;
}

// Splits a place into axis and index: "pp:1" is pp and 1; "pp:(2)2=1", with a sub-axis, is pp:(2)2 and 1. The last ':'
// or '=' separates them.
std::pair<std::string_view, std::string_view> axis_and_index(std::string_view entry) {
  const size_t sign =
      std::min(entry.rfind('='), entry.find('=') == std::string_view::npos ? entry.rfind(':') : entry.size());
  return {trim(entry.substr(0, sign)), sign < entry.size() ? trim(entry.substr(sign + 1)) : ""};
}

class ShardingParser {
 public:
  ShardingParser(const Shape& shape, const Mesh& mesh, std::string_view what)
      : shape_(shape), mesh_(mesh), what_(what) {}

  Sharding parse(std::string_view text) {
    text = trim(text);
    size_t close = text.find(']');
    if (!text.starts_with('[') || close == std::string_view::npos)
      wrong("'{}' is not a sharding; write one entry per dimension in brackets, as [-, tp]", text);
    std::string_view inside = trim(text.substr(1, close - 1));
    auto dims = inside.empty() ? std::vector<std::string_view>{} : split_outside(inside, ",");
    if (dims.size() != shape_.size())
      wrong("'{}' has {}, but the tensor has {} {}; give one entry for each", text,
            counted(dims.size(), "entry", "entries"), counted(shape_.size(), "dimension"), to_string(shape_));
    Sharding result;
    for (size_t d = 0; d < dims.size(); ++d) result.dims.push_back(dimension(dims[d], d));
    std::string_view rest = trim(text.substr(close + 1));
    if (size_t at = rest.find("at("); at != std::string_view::npos && rest.ends_with(')')) {
      result.at = parse_place(rest.substr(at + 3, rest.size() - at - 4), mesh_, what_);
      rest = trim(rest.substr(0, at));
    }
    if (!rest.empty()) result.partial = partial(rest);
    refuse_twice(result);
    return result;
  }

 private:
  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
    fail("annotate", "'{}': {}", what_, fmt::format(format, std::forward<Args>(args)...));
  }

  int64_t number(std::string_view text, std::string_view where) {
    int64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1)
      wrong("'{}' in '{}' is not a positive number", text, where);
    return value;
  }

  AxisRef axis(std::string_view text) {
    size_t colon = text.find(':');
    std::string_view name = trim(text.substr(0, colon));
    auto index = mesh_.find(name);
    if (!index) {
      std::string known;
      for (const MeshAxis& candidate : mesh_.axes()) known += (known.empty() ? "" : ", ") + candidate.name;
      wrong("'{}' is not an axis of the mesh; its axes are: {}", name, known.empty() ? "none" : known);
    }
    return parse_axis(text, mesh_);
  }

  std::vector<AxisRef> axes(std::string_view text) {  // "{dp,tp}"
    std::vector<AxisRef> result;
    std::string_view inside = trim(text.substr(1, text.size() - 2));
    if (inside.empty()) return result;
    for (std::string_view name : split_outside(inside, ",")) result.push_back(axis(name));
    return result;
  }

  DimSharding dimension(std::string_view text, size_t d) {
    const Expr& extent = shape_[d];
    DimSharding result;
    if (text.ends_with('?')) {
      result.open = true;
      text = trim(text.substr(0, text.size() - 1));
    }
    if (text == "-" && result.open) wrong("'-?' is both closed and open; write '?' for an open dimension");
    if (text == "-" || (text.empty() && result.open)) {
      result.parts.push_back({extent, {}});
      return result;
    }
    if (text.empty()) wrong("dimension {} has an empty entry; write '-' for a whole dimension", d);
    std::string plain(text);
    for (size_t at; (at = plain.find("·")) != std::string::npos;)
      plain.replace(at, std::string_view("·").size(), 1, '*');
    auto pieces = split_outside(plain, "*");
    int missing = -1;
    Expr known = 1;
    for (size_t p = 0; p < pieces.size(); ++p) {
      std::string_view piece = pieces[p];
      size_t brace = piece.find('{');
      std::string_view size = trim(piece.substr(0, brace));
      Part part;
      if (brace != std::string_view::npos) {
        if (!piece.ends_with('}')) wrong("'{}' lacks a closing brace", piece);
        part.axes = axes(piece.substr(brace));
      } else if (pieces.size() == 1 && mesh_.find(size.substr(0, size.find(':')))) {
        part.axes = {axis(size)};
        size = "";
      }
      if (size.empty()) {
        if (missing >= 0) wrong("'{}' leaves out two part sizes; at most one can be derived", text);
        missing = static_cast<int>(p);
      } else {
        auto parsed = Expr::parse(size);
        bool is_name = parsed && !parsed->is_constant();
        if (!parsed || (parsed->is_constant() && *parsed->constant() < 1 && !(parsed->is(0) && extent.is(0))))
          wrong("'{}' in '{}' is neither an axis nor a part's size", size, text);
        std::set<std::string> symbols;
        if (is_name) parsed->collect_symbols(symbols);
        std::set<std::string> of_dim;
        extent.collect_symbols(of_dim);
        for (const std::string& symbol : symbols)
          if (!of_dim.contains(symbol)) axis(symbol);  // reports an unknown axis, with the mesh's axes
        part.size = *parsed;
        known = known * *parsed;
      }
      result.parts.push_back(std::move(part));
    }
    if (missing >= 0) {
      auto rest = Expr::exact_divide(extent, known);
      if (!rest)
        wrong("the parts {} of '{}' do not divide dimension {} of extent {}", known.str(), text, d, extent.str());
      result.parts[missing].size = *rest;
    } else if (!(known == extent)) {
      wrong("the parts of '{}' multiply to {}, but dimension {} has extent {}", text, known.str(), d, extent.str());
    }
    return result;
  }

  std::vector<PartialAxis> partial(std::string_view text) {  // "partial(sum:tp, max:dp)"
    if (!text.starts_with("partial(") || !text.ends_with(')'))
      wrong("'{}' after the bracket; only partial(sum:AXIS) and at(AXIS=INDEX) may follow it", text);
    std::vector<PartialAxis> result;
    for (std::string_view piece : split_outside(text.substr(8, text.size() - 9), ",")) {
      size_t colon = piece.find(':');
      std::string_view name = piece.substr(0, colon);
      Reduction reduction = Reduction::sum;
      if (name == "max")
        reduction = Reduction::max;
      else if (name == "min")
        reduction = Reduction::min;
      else if (name != "sum" || colon == std::string_view::npos)
        wrong("'{}' is not a partial sum; write sum:AXIS, max:AXIS or min:AXIS", piece);
      result.push_back({axis(piece.substr(colon + 1)), reduction});
    }
    return result;
  }

  void refuse_twice(const Sharding& sharding) {
    auto place = [&](const AxisRef& wanted, size_t skip) -> std::string {
      size_t at = 0;
      for (size_t d = 0; d < sharding.dims.size(); ++d)
        for (const Part& part : sharding.dims[d].parts)
          for (const AxisRef& candidate : part.axes)
            if (at++ != skip && candidate.overlaps(wanted)) return fmt::format("dimension {}", d);
      for (const PartialAxis& candidate : sharding.partial)
        if (at++ != skip && candidate.axis.overlaps(wanted)) return "its partial sum";
      for (const PlacedAxis& candidate : sharding.at)
        if (at++ != skip && candidate.axis.overlaps(wanted)) return "its place";
      return "";
    };
    size_t at = 0;
    for (size_t d = 0; d < sharding.dims.size(); ++d)
      for (const Part& part : sharding.dims[d].parts)
        for (const AxisRef& candidate : part.axes) {
          std::string other = place(candidate, at++);
          if (!other.empty())
            wrong("axis '{}' splits both dimension {} and {}; name it once", candidate.str(mesh_), d, other);
        }
    for (const PartialAxis& candidate : sharding.partial)
      if (!place(candidate.axis, at++).empty())
        wrong("axis '{}' is named twice; name it once", candidate.axis.str(mesh_));
    for (const PlacedAxis& candidate : sharding.at)
      if (!place(candidate.axis, at++).empty())
        wrong("axis '{}' is named twice; name it once", candidate.axis.str(mesh_));
  }

  const Shape& shape_;
  const Mesh& mesh_;
  std::string_view what_;
};

}  // namespace

bool reads_as_place(std::string_view text) {
  const std::vector<std::string_view> entries = split_outside(text, ",");
  return std::all_of(entries.begin(), entries.end(), [](std::string_view entry) {
    const auto [axis, digits] = axis_and_index(entry);
    return !axis.empty() && !digits.empty() && axis.find('=') == std::string_view::npos &&
           digits.find_first_not_of("0123456789") == std::string_view::npos;
  });
}

std::vector<PlacedAxis> parse_place(std::string_view text, const Mesh& mesh, std::string_view what) {
  std::vector<PlacedAxis> places;
  for (std::string_view entry : split_outside(text, ",")) {
    const auto [name, digits] = axis_and_index(entry);
    int64_t index = -1;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
      fail("place", "'{}': '{}' is not a place; write AXIS:INDEX, as pp:1", what, entry);
    const AxisRef axis = [&, &name = name] {
      try {
        return parse_axis(name, mesh);
      } catch (const Error&) {
        fail("place", "'{}': '{}' is not an axis of the mesh {}; name one of its axes", what, name, mesh.str());
      }
    }();
    if (index < 0 || index >= axis.size)
      fail("place", "'{}': axis '{}' has no index {}; its indices are 0 to {}", what, axis.str(mesh), index,
           axis.size - 1);
    for (const PlacedAxis& other : places)
      if (other.axis.overlaps(axis))
        fail("place", "'{}': axis '{}' is named twice; name it once", what, axis.str(mesh));
    places.push_back({axis, index});
  }
  std::sort(places.begin(), places.end(), [](const PlacedAxis& a, const PlacedAxis& b) { return a.axis < b.axis; });
  return places;
}

Sharding parse_sharding(std::string_view text, const Shape& shape, const Mesh& mesh, std::string_view what) {
  return ShardingParser(shape, mesh, what).parse(text);
}

}  // namespace tessera
