#include "tessera/mesh/group.h"

#include <charconv>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/mesh/axis_name.h"

namespace tessera {
namespace {

// "tp", or "tp:(PRE)SIZE"; `pre` and `size` are 0 for a whole axis. Nullopt for anything else.
struct AxisText {
  std::string_view name;
  int64_t pre = 0, size = 0;
};
std::optional<AxisText> read_axis(std::string_view text) {
  const size_t colon = text.find(':');
  AxisText read{text.substr(0, colon)};
  if (!is_axis_name(read.name)) return std::nullopt;
  if (colon == std::string_view::npos) return read;
  const std::string_view sub = text.substr(colon + 1);
  const size_t close = sub.find(')');
  const auto number = [&](std::string_view digits, int64_t& into) {
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), into);
    return error == std::errc() && end == digits.data() + digits.size() && into > 0;
  };
  const bool reads = sub.starts_with('(') && close != std::string_view::npos &&
                     number(sub.substr(1, close - 1), read.pre) && number(sub.substr(close + 1), read.size);
  return reads ? std::optional(read) : std::nullopt;
}

}  // namespace

bool reads_as_axis(std::string_view text) {
  return read_axis(text).has_value();
}

AxisRef parse_axis(std::string_view text, const Mesh& mesh) {
  auto index = mesh.find(text.substr(0, text.find(':')));
  if (!index)
    fail("mesh", "'{}' is not an axis of the mesh {}; give a `mesh` with it", text,
         mesh.axes().empty() ? "of one rank" : mesh.str());
  AxisRef axis = AxisRef::whole(mesh.axes()[*index]);
  const std::optional<AxisText> read = read_axis(text);
  if (!read) fail("mesh", "'{}' is not a sub-axis of {}; write {}:(PRE)SIZE", text, axis.axis, axis.axis);
  if (read->size == 0) return axis;
  const int64_t total = axis.size;
  axis.pre = read->pre;
  axis.size = read->size;
  if (total % axis.pre != 0 || (total / axis.pre) % axis.size != 0)
    fail("mesh", "sub-axis '{}': {} x {} does not divide the axis' size {}", text, axis.pre, axis.size, total);
  return axis;
}

std::vector<AxisRef> parse_axes(const std::vector<std::string>& texts, const Mesh& mesh) {
  std::vector<AxisRef> axes;
  for (const std::string& text : texts) axes.push_back(parse_axis(text, mesh));
  return axes;
}

std::vector<int> group_of(int64_t rank, const std::vector<AxisRef>& axes, const Mesh& mesh) {
  std::vector<int> ranks = {static_cast<int>(rank)};
  for (const AxisRef& axis : axes) {
    auto index = mesh.find(axis.axis);
    check(index.has_value(), "a group's axis is on the mesh");
    // The distance of neighbouring ranks along the axis, and the unit of the (sub-)axis' digit.
    int64_t stride = 1;
    for (size_t later = *index + 1; later < mesh.axes().size(); ++later) stride *= mesh.axes()[later].size;
    const int64_t size = mesh.axes()[*index].size, minor = size / (axis.pre * axis.size);
    std::vector<int> next;
    next.reserve(ranks.size() * static_cast<size_t>(axis.size));
    for (const int64_t member : ranks) {
      const int64_t own = member / stride % size / minor % axis.size;
      for (int64_t digit = 0; digit < axis.size; ++digit)
        next.push_back(static_cast<int>(member + (digit - own) * minor * stride));
    }
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace tessera
