#include "tessera/mesh/sharding.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {
namespace {

int64_t axis_total(const AxisRef& axis, const Mesh& mesh) {
  auto index = mesh.find(axis.axis);
  check(index.has_value(), "the mesh has the axis");
  return mesh.axes()[*index].size;
}

// Whether the second is the next digit below the first, of one mesh axis.
bool are_neighbours(const AxisRef& major, const AxisRef& minor) {
  return major.axis == minor.axis && major.pre * major.size == minor.pre;
}

}  // namespace

std::vector<AxisRef> join_even(const Part& part) {
  std::vector<AxisRef> joined;
  std::optional<Expr> before, left = part.size;  // extents before and after the last joined axis, while splits are even
  for (const AxisRef& axis : part.axes) {
    if (!joined.empty() && are_neighbours(joined.back(), axis) && left && Expr::exact_divide(*left, axis.size)) {
      joined.back().size *= axis.size;
    } else {
      joined.push_back(axis);
      before = left;
    }
    left = before ? Expr::exact_divide(*before, joined.back().size) : std::nullopt;
  }
  return joined;
}

int64_t ranks_of(const std::vector<AxisRef>& axes) {
  int64_t count = 1;
  for (const AxisRef& axis : axes) count *= axis.size;
  return count;
}

bool contains(const std::vector<AxisRef>& axes, const AxisRef& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

std::optional<std::vector<AxisRef>> without(const AxisRef& whole, const AxisRef& gone) {
  if (whole.axis != gone.axis || gone.pre < whole.pre || gone.pre % whole.pre != 0) return std::nullopt;
  const int64_t end = gone.pre * gone.size;
  if (end > whole.pre * whole.size || (whole.pre * whole.size) % end != 0) return std::nullopt;
  std::vector<AxisRef> left;
  if (gone.pre > whole.pre) left.push_back({whole.axis, whole.pre, gone.pre / whole.pre});
  if (end < whole.pre * whole.size) left.push_back({whole.axis, end, whole.pre * whole.size / end});
  return left;
}

int64_t digit_of(int64_t member, const std::vector<AxisRef>& group, const AxisRef& axis) {
  for (auto of_group = group.rbegin(); of_group != group.rend(); ++of_group) {
    const int64_t digit = member % of_group->size;
    if (without(*of_group, axis)) {
      const int64_t minor = of_group->pre * of_group->size / (axis.pre * axis.size);
      return digit / minor % axis.size;
    }
    member /= of_group->size;
  }
  check(false, "the axis is one of the group's");
  return 0;
}

bool AxisRef::is_whole(const Mesh& mesh) const {
  return pre == 1 && size == axis_total(*this, mesh);
}

// For an axis of 6, tp:(1)2 and tp:(2)3 are the digits of one mixed-radix number. tp:(1)2 and tp:(3)2 are not: they are
// digits of 2·3 and of 3·2, which depend on each other although no rank's digit of one follows from the other's.
bool AxisRef::overlaps(const AxisRef& other) const {
  if (axis != other.axis) return false;
  return other.pre % (pre * size) != 0 && pre % (other.pre * other.size) != 0;
}

std::string AxisRef::str(const Mesh& mesh) const {
  return is_whole(mesh) ? axis : fmt::format("{}:({}){}", axis, pre, size);
}

bool AxisRef::operator<(const AxisRef& other) const {
  return std::tie(axis, pre, size) < std::tie(other.axis, other.pre, other.size);
}

bool is_prefix(const std::vector<AxisRef>& shorter, const std::vector<AxisRef>& longer) {
  return shorter.size() <= longer.size() && std::equal(shorter.begin(), shorter.end(), longer.begin());
}

std::vector<AxisRef> join_axes(const std::vector<AxisRef>& axes) {
  std::vector<AxisRef> joined;
  for (const AxisRef& axis : axes)
    if (!joined.empty() && are_neighbours(joined.back(), axis))
      joined.back().size *= axis.size;
    else
      joined.push_back(axis);
  return joined;
}

Expr index_along(const AxisRef& axis, const Mesh& mesh) {
  if (axis.size == 1) return 0;
  int64_t minor = axis_total(axis, mesh) / (axis.pre * axis.size);
  Expr digit = floordiv(Expr::axis_index(axis.axis), minor);
  return axis.pre == 1 ? digit : mod(digit, axis.size);
}

int64_t digit_along(const AxisRef& axis, const Mesh& mesh, const std::vector<int64_t>& coordinates) {
  const int64_t minor = axis_total(axis, mesh) / (axis.pre * axis.size);
  return coordinates[static_cast<size_t>(*mesh.find(axis.axis))] / minor % axis.size;
}

bool DimSharding::is_split() const {
  return std::any_of(parts.begin(), parts.end(), [](const Part& part) { return ranks_of(part.axes) > 1; });
}

Expr DimSharding::size() const {
  Expr size = 1;
  for (const Part& part : parts) size = size * part.size;
  return size;
}

Sharding Sharding::replicated(const Shape& shape) {
  Sharding sharding;
  for (const Expr& extent : shape) sharding.dims.push_back({{Part{extent, {}}}, false});
  return sharding;
}

bool Sharding::is_whole() const {
  return partial.empty() && std::none_of(dims.begin(), dims.end(), [](const auto& dim) { return dim.is_split(); });
}

bool Sharding::lives_on(const Mesh& mesh, const std::vector<int64_t>& coordinates) const {
  return std::all_of(at.begin(), at.end(), [&](const PlacedAxis& place) {
    return digit_along(place.axis, mesh, coordinates) == place.index;
  });
}

std::vector<AxisRef> Sharding::axes() const {
  std::vector<AxisRef> all;
  for (const DimSharding& dim : dims)
    for (const Part& part : dim.parts) all.insert(all.end(), part.axes.begin(), part.axes.end());
  for (const PartialAxis& axis : partial) all.push_back(axis.axis);
  for (const PlacedAxis& place : at) all.push_back(place.axis);
  return all;
}

bool Sharding::uses(const AxisRef& axis) const {
  auto all = axes();
  return std::any_of(all.begin(), all.end(), [&](const AxisRef& used) { return used.overlaps(axis); });
}

std::string Sharding::str(const Mesh& mesh) const {
  std::string text = "[";
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d) text += ", ";
    std::string dim;
    if (std::all_of(dims[d].parts.begin(), dims[d].parts.end(), [](const Part& part) { return part.axes.empty(); })) {
      if (!dims[d].open) dim = "-";
    } else {
      for (const Part& part : dims[d].parts) {
        if (!dim.empty()) dim += "·";
        std::string size = part.size.str();
        dim += size.find_first_of(" *") == std::string::npos ? size : "(" + size + ")";
        std::string axes;
        for (const AxisRef& axis : part.axes) axes += (axes.empty() ? "" : ",") + axis.str(mesh);
        if (!axes.empty()) dim += "{" + axes + "}";
      }
    }
    text += dim + (dims[d].open ? "?" : "");
  }
  text += "]";
  if (!partial.empty()) {
    text += " partial(";
    for (size_t i = 0; i < partial.size(); ++i)
      text += fmt::format("{}{}:{}", i ? ", " : "", name_of(partial[i].reduction), partial[i].axis.str(mesh));
    text += ")";
  }
  if (!at.empty()) text += " at(" + print_place(at, mesh) + ")";
  return text;
}

std::string print_place(const std::vector<PlacedAxis>& place, const Mesh& mesh) {
  std::string text;
  for (const PlacedAxis& entry : place)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", entry.axis.str(mesh), entry.index);
  return text;
}

namespace {

// Computes the index only if the extent depends on it, since indices are large expressions.
template <typename Index>
Expr extent_of_shard(const Expr& size, int64_t count, const Index& index) {
  if (count == 1) return size;
  if (auto even = Expr::exact_divide(size, count)) return *even;
  return floordiv(size + (count - 1) - index(), count);
}

}  // namespace

Expr split_extent(const Expr& size, const Expr& index, int64_t count) {
  return extent_of_shard(size, count, [&] { return index; });
}

Expr split_offset(const Expr& size, const Expr& index, int64_t count) {
  if (count == 1) return 0;
  if (auto even = Expr::exact_divide(size, count)) return index * *even;
  return index * floordiv(size, count) + min(index, mod(size, count));
}

Expr local_extent(const Part& part, const Mesh& mesh) {
  Expr extent = part.size;
  for (const AxisRef& axis : part.axes)
    extent = extent_of_shard(extent, axis.size, [&] { return index_along(axis, mesh); });
  return extent;
}

Expr local_offset(const Part& part, const Mesh& mesh) {
  Expr offset = 0, extent = part.size;
  for (const AxisRef& axis : part.axes) {
    Expr index = index_along(axis, mesh);
    offset = offset + split_offset(extent, index, axis.size);
    extent = split_extent(extent, index, axis.size);
  }
  return offset;
}

Expr local_extent(const DimSharding& dim, const Mesh& mesh) {
  Expr extent = 1;
  for (const Part& part : dim.parts) extent = extent * local_extent(part, mesh);
  return extent;
}

Shape local_shape(const Sharding& sharding, const Mesh& mesh) {
  Shape shape;
  for (const DimSharding& dim : sharding.dims) shape.push_back(local_extent(dim, mesh));
  return shape;
}

Expr local_offset(const DimSharding& dim, const Mesh& mesh) {
  DimSharding merged = canonical(dim);
  Expr minor = 1;
  for (size_t p = 1; p < merged.parts.size(); ++p) {
    check(merged.parts[p].axes.empty(), "only the major part of an interval is split");
    minor = minor * merged.parts[p].size;
  }
  return merged.parts.empty() ? Expr(0) : local_offset(merged.parts[0], mesh) * minor;
}

DimSharding canonical(const DimSharding& dim) {
  DimSharding result;
  result.open = dim.open;
  std::vector<Part>& parts = result.parts;
  for (Part part : dim.parts) {
    std::erase_if(part.axes, [](const AxisRef& axis) { return axis.size == 1; });
    if (part.axes.empty() && part.size.is(1)) continue;
    if (!parts.empty()) {
      Part& major = parts.back();
      int64_t ranks = ranks_of(major.axes);
      bool merges = part.axes.empty() ? major.axes.empty() || Expr::exact_divide(major.size, ranks).has_value()
                                      : !major.axes.empty() && major.size.is(ranks);
      if (merges) {
        major.size = major.size * part.size;
        major.axes.insert(major.axes.end(), part.axes.begin(), part.axes.end());
        continue;
      }
    }
    parts.push_back(std::move(part));
  }
  for (Part& part : parts) part.axes = join_even(part);
  if (parts.empty()) parts.push_back(Part{1, {}});
  return result;
}

namespace {

// Whether canonical() leaves the dimension as it is: it is one part, and one axis of several ranks splits it, or none.
bool is_plainly_canonical(const DimSharding& dim) {
  return dim.parts.size() == 1 &&
         (dim.parts[0].axes.empty() || (dim.parts[0].axes.size() == 1 && dim.parts[0].axes[0].size > 1));
}

bool same_dim(const DimSharding& a, const DimSharding& b) {
  if (a.parts == b.parts) return true;
  if (is_plainly_canonical(a) && is_plainly_canonical(b)) return false;
  return canonical(a).parts == canonical(b).parts;
}

}  // namespace

bool same_layout(const Sharding& a, const Sharding& b) {
  if (a.dims.size() != b.dims.size()) return false;
  // Each entry has one axis, and entries have different axes; their order and axes of one rank do not matter.
  auto settled = [](auto entries) {
    std::erase_if(entries, [](const auto& entry) { return entry.axis.size == 1; });
    std::sort(entries.begin(), entries.end(), [](const auto& x, const auto& y) { return x.axis < y.axis; });
    return entries;
  };
  if (a.partial != b.partial && settled(a.partial) != settled(b.partial)) return false;
  if (a.at != b.at && settled(a.at) != settled(b.at)) return false;
  if (a.dims.identity() == b.dims.identity()) return true;
  return std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), same_dim);
}

std::vector<Expr> boundaries(const DimSharding& dim) {
  std::vector<Expr> cuts;
  Expr minor = 1;
  for (auto part = dim.parts.rbegin(); part != dim.parts.rend(); ++part) cuts.push_back(minor = minor * part->size);
  return cuts;
}

namespace {

// [m·q]{axes} as m{…}·q{…}: axes go to m as long as their sizes divide what is left of it, the others to q.
std::optional<std::pair<Part, Part>> divide(const Part& part, const Expr& major, const Expr& minor) {
  Part high{major, {}}, low{minor, {}};
  Expr left = major;  // units of the major factor not yet split
  for (size_t i = 0; i < part.axes.size(); ++i) {
    const AxisRef& axis = part.axes[i];
    if (axis.size == 1) continue;
    if (left.is(1)) {
      low.axes.push_back(axis);
    } else if (auto quotient = Expr::exact_divide(left, axis.size)) {
      high.axes.push_back(axis);
      left = *quotient;
    } else {
      auto units = left.constant();
      if (!units || *units == 0 || axis.size % *units != 0) return std::nullopt;
      if (!Expr::exact_divide(minor, axis.size / *units)) return std::nullopt;
      high.axes.push_back({axis.axis, axis.pre, *units});
      low.axes.push_back({axis.axis, axis.pre * *units, axis.size / *units});
      left = 1;
    }
  }
  return std::pair{high, low};
}

}  // namespace

std::optional<DimSharding> refine(const DimSharding& dim, const std::vector<Expr>& cuts) {
  DimSharding result;
  result.open = dim.open;
  Expr minor = 1;
  for (auto part = dim.parts.rbegin(); part != dim.parts.rend(); ++part) {
    Part rest = *part;
    std::vector<Part> pieces;  // minor to major
    // Cuts within this part, ascending; each divides what is left of it.
    bool found = true;
    Expr below = minor;
    while (found) {
      found = false;
      std::optional<Expr> best;
      for (const Expr& cut : cuts) {
        auto low = Expr::exact_divide(cut, below);
        if (!low || low->is(1) || *low == rest.size) continue;
        if (!Expr::exact_divide(rest.size, *low)) continue;
        if (!best || Expr::exact_divide(*best, *low)) best = low;
      }
      if (!best) break;
      auto halves = divide(rest, *Expr::exact_divide(rest.size, *best), *best);
      if (!halves) return std::nullopt;
      pieces.push_back(halves->second);
      rest = halves->first;
      below = below * *best;
      found = true;
    }
    pieces.push_back(rest);
    result.parts.insert(result.parts.begin(), pieces.rbegin(), pieces.rend());
    minor = minor * part->size;
  }
  return result;
}

Expr largest_shard(const Sharding& sharding, const Mesh& /*mesh*/) {
  Expr elements = 1;
  for (const DimSharding& dim : sharding.dims)
    for (const Part& part : dim.parts) {
      Expr extent = part.size;
      for (const AxisRef& axis : part.axes) extent = extent_of_shard(extent, axis.size, [] { return Expr(0); });
      elements = elements * extent;
    }
  return elements;
}

Expr bind_rank(const Expr& expr, const Mesh& mesh, const std::vector<int64_t>& coordinates) {
  if (!expr.mentions_axes()) return expr;
  auto index = [&](std::string_view name) -> std::optional<int64_t> {
    if (!name.starts_with('@')) return std::nullopt;
    auto axis = mesh.find(name.substr(1));
    if (!axis)
      check(false,
            fmt::format("mesh '{}' has the axis of {}", mesh.str(), name));  // makes the text only if the check fails
    return coordinates[*axis];
  };
  if (!expr.mentions_sizes()) return expr.evaluate(index);
  return expr.substitute(index);
}

}  // namespace tessera
