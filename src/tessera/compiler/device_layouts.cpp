#include "tessera/compiler/device_layouts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/compiler/device_faults.h"

namespace tessera::compiler {
namespace {

using Digits = std::vector<std::vector<ShardDigit>>;  // of each factor of an axis

// The entry of an annotation for an axis whose factors have these digits; nullopt if there is none, since the shards
// that devices hold in turn differ in size.
std::optional<std::string> entry_of(const ShardedAxis& axis, const Digits& digits, const Expr& extent,
                                    const Mesh& mesh) {
  struct Piece {
    std::optional<Expr> size;  // nullopt: the rest of the axis
    std::vector<std::string> axes;
  };
  std::vector<Piece> pieces;
  for (size_t f = 0; f < axis.factors.size(); ++f) {
    std::optional<Expr> size;
    if (axis.factors.size() == 1)
      size = extent;
    else
      size = size_of(axis.factors[f], extent);
    std::vector<ShardDigit> run = digits[f];
    while (!run.empty() && !run.back().axis) run.pop_back();  // neighbours on one device form one shard
    const size_t first = pieces.size();
    int64_t before = 1;  // shards of this factor's pieces, except its last
    for (size_t i = 0; i < run.size(); ++i) {
      if (pieces.size() == first || run[i].axis.has_value() != run[i - 1].axis.has_value()) {
        if (pieces.size() > first) before *= *pieces.back().size->constant();
        pieces.push_back({Expr(1), {}});
      }
      pieces.back().size = *pieces.back().size * Expr(run[i].size);
      if (run[i].axis) pieces.back().axes.push_back(run[i].axis->str(mesh));
    }
    if (pieces.size() == first) pieces.push_back({size, {}});
    if (size && pieces.size() > first) {
      pieces.back().size = Expr::exact_divide(*size, Expr(before));
      if (!pieces.back().size && before > 1) return std::nullopt;
    }
    if (!size) pieces.back().size.reset();
  }
  if (std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.axes.empty(); })) return "-";
  std::erase_if(pieces, [](const Piece& piece) { return piece.axes.empty() && piece.size && piece.size->is(1); });
  std::vector<std::string> texts;
  for (const Piece& piece : pieces) {
    std::string text = piece.size && pieces.size() > 1 ? piece.size->str() : "";
    if (!piece.axes.empty()) text += fmt::format("{{{}}}", fmt::join(piece.axes, ","));
    texts.push_back(text);
  }
  return fmt::format("{}", fmt::join(texts, "*"));
}

// Blocks, if shards cannot be distributed in turn.
std::string block_of(const Digits& digits, const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const auto& run : digits)
    for (const ShardDigit& digit : run)
      if (digit.axis) axes.push_back(digit.axis->str(mesh));
  return axes.empty() ? "-" : fmt::format("{{{}}}", fmt::join(axes, ","));
}

// Whether an axis is one factor with one block of shards for each device.
bool lies_in_blocks(const Digits& digits) {
  if (digits.size() != 1) return false;
  const auto is_shared = [](const ShardDigit& digit) { return !digit.axis; };
  const auto shared = std::find_if(digits[0].begin(), digits[0].end(), is_shared);
  return std::all_of(shared, digits[0].end(), is_shared);
}

// Calls visit(axis, digits) for each axis that the spec splits.
template <typename Visit>
void for_axes(const ShardingSpec& spec, const ListedLayout& layout, const Visit& visit) {
  auto at = layout.factors.begin();
  for (const ShardedAxis& axis : spec.axes) {
    const auto end = at + static_cast<int64_t>(axis.factors.size());
    visit(axis, Digits(at, end));
    at = end;
  }
}

}  // namespace

const Form* form_in(const Forms& forms, const Node* node, const std::string& tensor) {
  const auto of_node = forms.find(node);
  if (of_node == forms.end()) return nullptr;
  const auto found = of_node->second.find(tensor);
  return found == of_node->second.end() ? nullptr : &found->second;
}

bool same_place(const std::vector<PlacedAxis>& a, const std::vector<PlacedAxis>& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const PlacedAxis& entry) {
           return std::find(b.begin(), b.end(), entry) != b.end();
         });
}

DeviceList list_of(const ShardingSpec& spec, const std::vector<int64_t>& otherwise) {
  DeviceList list;
  for (const ShardedAxis& axis : spec.axes)
    for (const ShardedFactor& factor : axis.factors) list.counts.push_back(factor.shards);
  list.holders = holders_of(spec, otherwise);
  if (shards_of(spec) == 1) {  // each listed device has all of it
    std::set<int64_t> all;
    for (const auto& holders : list.holders) all.insert(holders.begin(), holders.end());
    list.holders = {{all.begin(), all.end()}};
  }
  return list;
}

DeviceList whole_on(const std::vector<int64_t>& devices) {
  return {{}, {devices}};
}

ListedLayout nearest_layout(const DeviceList& list, const Mesh& mesh, const std::vector<int64_t>& devices) {
  ListedLayout layout;
  std::vector<bool> used(mesh.axes().size(), false);
  for (int64_t count : list.counts) {
    layout.factors.emplace_back();
    for (size_t first = 0; first < used.size() && count > 1 && layout.factors.back().empty(); ++first) {
      int64_t product = 1;
      size_t end = first;
      while (end < used.size() && !used[end] && product < count) product *= mesh.axes()[end++].size;
      if (product != count) continue;
      for (size_t a = first; a < end; ++a) {
        used[a] = true;
        layout.factors.back().push_back({mesh.axes()[a].size, AxisRef::whole(mesh.axes()[a])});
      }
    }
  }
  for (size_t a = 0; a < used.size(); ++a) {
    std::set<int64_t> indices;
    for (const auto& holders : list.holders)
      for (int64_t device : holders) {
        const auto rank = std::find(devices.begin(), devices.end(), device) - devices.begin();
        indices.insert(mesh.coordinates(rank)[a]);
      }
    if (!used[a] && indices.size() == 1 && mesh.axes()[a].size > 1)
      layout.at.push_back({AxisRef::whole(mesh.axes()[a]), *indices.begin()});
  }
  return layout;
}

LayoutText layout_text(const ShardingSpec& spec, const ListedLayout& layout, const Shape& shape, const Mesh& mesh) {
  std::vector<std::string> entries(shape.size(), "-");
  LayoutText text;
  for_axes(spec, layout, [&](const ShardedAxis& axis, const Digits& digits) {
    const auto d = static_cast<size_t>(axis.axis < 0 ? axis.axis + static_cast<int64_t>(shape.size()) : axis.axis);
    const std::optional<std::string> entry = entry_of(axis, digits, shape[d], mesh);
    entries[d] = entry ? *entry : block_of(digits, mesh);
    text.exact = text.exact && entry;
  });
  text.text = fmt::format("[{}]", fmt::join(entries, ", "));
  return text;
}

std::optional<LayoutText> layout_text_for_any_rank(const ShardingSpec& spec, const ListedLayout& layout,
                                                   const Mesh& mesh) {
  std::map<int64_t, std::string> entries;
  LayoutText text;
  for_axes(spec, layout, [&](const ShardedAxis& axis, const Digits& digits) {
    entries[axis.axis] = block_of(digits, mesh);
    text.exact = text.exact && lies_in_blocks(digits);
  });
  const int64_t first = entries.empty() ? 0 : entries.begin()->first;
  const int64_t last = entries.empty() ? -1 : entries.rbegin()->first;
  if (first < 0 && last >= 0) return std::nullopt;
  std::vector<std::string> all;
  for (int64_t d = std::min<int64_t>(first, 0); d <= (first < 0 ? -1 : last); ++d)
    all.push_back(entries.contains(d) ? entries.at(d) : "-");
  all.insert(first < 0 ? all.begin() : all.end(), "...");
  text.text = fmt::format("[{}]", fmt::join(all, ", "));
  return text;
}

}  // namespace tessera::compiler
