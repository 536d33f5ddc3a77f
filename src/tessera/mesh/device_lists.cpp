#include "tessera/mesh/device_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::string_view kAxis = "d";

// The ways to write a number as an ordered product of factors above one, those of fewest factors first.
std::vector<std::vector<int64_t>> ordered_factorizations(int64_t number) {
  std::vector<std::vector<int64_t>> all;
  std::vector<int64_t> chosen;
  auto extend = [&](auto&& self, int64_t rest) -> void {
    if (rest == 1) {
      all.push_back(chosen);
      return;
    }
    for (int64_t factor = 2; factor <= rest; ++factor) {
      if (rest % factor != 0) continue;
      chosen.push_back(factor);
      self(self, rest / factor);
      chosen.pop_back();
    }
  };
  extend(extend, number);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return all;
}

int64_t product(const std::vector<int64_t>& numbers) {
  int64_t result = 1;
  for (int64_t number : numbers) result *= number;
  return result;
}

// Finds a layout over given axes, whole ones, by matching the digits of shards' numbers with those of their holders.
class Fitter {
 public:
  // `holders` are ranks of the mesh.
  Fitter(const std::vector<int64_t>& counts, const std::vector<std::vector<int64_t>>& holders, const Mesh& mesh)
      : counts_(counts), holders_(holders), mesh_(mesh), used_(mesh.axes().size(), false) {}

  std::optional<ListedLayout> fit() {
    layout_.factors.resize(counts_.size());
    if (!assign(0, counts_.empty() ? 1 : counts_[0])) return std::nullopt;
    return layout_;
  }

 private:
  // The number along factor `f` of shard `s`.
  int64_t number(size_t s, size_t f) const {
    int64_t minor = 1;
    for (size_t g = f + 1; g < counts_.size(); ++g) minor *= counts_[g];
    return static_cast<int64_t>(s) / minor % counts_[f];
  }

  bool is_digit(size_t axis, size_t f, int64_t minor) const {
    const int64_t size = mesh_.axes()[axis].size;
    for (size_t s = 0; s < holders_.size(); ++s)
      for (int64_t rank : holders_[s])
        if (number(s, f) / minor % size != mesh_.coordinates(rank)[axis]) return false;
    return true;
  }

  // Finds the digits of factor `f`, of which those major to the last `rest` shards are found, and of those after it.
  bool assign(size_t f, int64_t rest) {
    if (f == counts_.size()) return place() && holders_of(layout_, mesh_) == holders_;
    if (rest == 1) return assign(f + 1, f + 1 < counts_.size() ? counts_[f + 1] : 1);
    auto& digits = layout_.factors[f];
    for (size_t a = 0; a < used_.size(); ++a) {
      const int64_t size = mesh_.axes()[a].size;
      if (used_[a] || size == 1 || rest % size != 0 || !is_digit(a, f, rest / size)) continue;
      used_[a] = true;
      digits.push_back({size, AxisRef::whole(mesh_.axes()[a])});
      if (assign(f, rest / size)) return true;
      digits.pop_back();
      used_[a] = false;
    }
    if (!digits.empty() && !digits.back().axis) return false;
    for (int64_t size = 2; size <= rest; ++size) {
      if (rest % size != 0) continue;
      digits.push_back({size, std::nullopt});
      if (assign(f, rest / size)) return true;
      digits.pop_back();
    }
    return false;
  }

  // Along an axis that no digit has, the holders are everywhere or at one index.
  bool place() {
    layout_.at.clear();
    for (size_t a = 0; a < used_.size(); ++a) {
      if (used_[a]) continue;
      std::set<int64_t> indices;
      for (const auto& shard : holders_)
        for (int64_t rank : shard) indices.insert(mesh_.coordinates(rank)[a]);
      const auto found = static_cast<int64_t>(indices.size());
      if (found == 1 && mesh_.axes()[a].size > 1)
        layout_.at.push_back({AxisRef::whole(mesh_.axes()[a]), *indices.begin()});
      else if (found != mesh_.axes()[a].size)
        return false;
    }
    return true;
  }

  const std::vector<int64_t>& counts_;
  const std::vector<std::vector<int64_t>>& holders_;
  const Mesh& mesh_;
  std::vector<bool> used_;
  ListedLayout layout_;
};

// The lists with ranks for devices.
std::vector<std::vector<int64_t>> ranks_of_holders(const DeviceList& list, const std::map<int64_t, int64_t>& rank_of) {
  std::vector<std::vector<int64_t>> ranks;
  for (const auto& shard : list.holders) {
    ranks.emplace_back();
    for (int64_t device : shard) ranks.back().push_back(rank_of.at(device));
    std::sort(ranks.back().begin(), ranks.back().end());
  }
  return ranks;
}

Mesh mesh_with(const std::vector<int64_t>& sizes) {
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < sizes.size(); ++i)
    axes.push_back({sizes.size() == 1 ? std::string(kAxis) : fmt::format("{}{}", kAxis, i), sizes[i]});
  return Mesh(std::move(axes));
}

using Layouts = std::vector<std::optional<ListedLayout>>;

Layouts over(const Mesh& mesh, const std::vector<DeviceList>& lists, const std::map<int64_t, int64_t>& rank_of) {
  Layouts layouts;
  for (const DeviceList& list : lists) {
    const auto holders = ranks_of_holders(list, rank_of);
    layouts.push_back(Fitter(list.counts, holders, mesh).fit());
  }
  return layouts;
}

size_t count(const Layouts& layouts) {
  return static_cast<size_t>(std::count_if(layouts.begin(), layouts.end(), [](const auto& one) { return !!one; }));
}

// Sub-axes of the one axis for axes of a factorization of it.
ListedLayout as_sub_axes(ListedLayout layout, const Mesh& factored, const Mesh& whole) {
  auto sub_axis = [&](const AxisRef& axis) {
    int64_t pre = 1;
    for (const MeshAxis& other : factored.axes()) {
      if (other.name == axis.axis) break;
      pre *= other.size;
    }
    return AxisRef{whole.axes()[0].name, pre, axis.size};
  };
  for (auto& digits : layout.factors)
    for (ShardDigit& digit : digits)
      if (digit.axis) digit.axis = sub_axis(*digit.axis);
  for (PlacedAxis& place : layout.at) place.axis = sub_axis(place.axis);
  return layout;
}

struct Found {
  Mesh mesh;
  Layouts layouts;
};

// The coarsest mesh over whose axes most lists are layouts; if no one mesh is best for all, sub-axes of a single axis.
Found best_mesh(int64_t ranks, const std::vector<DeviceList>& lists, const std::map<int64_t, int64_t>& rank_of) {
  if (ranks == 1) return {Mesh(), over(Mesh(), lists, rank_of)};
  Found best, each{mesh_with({ranks}), Layouts(lists.size())};
  bool first = true;
  for (const auto& sizes : ordered_factorizations(ranks)) {
    const Mesh mesh = mesh_with(sizes);
    Layouts layouts = over(mesh, lists, rank_of);
    for (size_t i = 0; i < lists.size(); ++i)
      if (!each.layouts[i] && layouts[i]) each.layouts[i] = as_sub_axes(*layouts[i], mesh, each.mesh);
    if (first || count(layouts) > count(best.layouts)) best = {mesh, std::move(layouts)};
    first = false;
    if (count(best.layouts) == lists.size()) return best;
  }
  return count(each.layouts) > count(best.layouts) ? each : best;
}

std::map<int64_t, int64_t> inverse(const std::vector<int64_t>& devices) {
  std::map<int64_t, int64_t> rank_of;
  for (size_t rank = 0; rank < devices.size(); ++rank) rank_of.emplace(devices[rank], static_cast<int64_t>(rank));
  return rank_of;
}

// The devices in the order in which a list names them first; those that it does not name follow.
std::vector<int64_t> order_of(const DeviceList& list, const std::vector<int64_t>& devices) {
  std::vector<int64_t> order;
  auto add = [&](int64_t device) {
    if (std::find(order.begin(), order.end(), device) == order.end()) order.push_back(device);
  };
  for (const auto& shard : list.holders) std::for_each(shard.begin(), shard.end(), add);
  std::for_each(devices.begin(), devices.end(), add);
  return order;
}

}  // namespace

std::vector<std::vector<int64_t>> holders_of(const ListedLayout& layout, const Mesh& mesh) {
  std::vector<ShardDigit> digits;
  for (const auto& factor : layout.factors) digits.insert(digits.end(), factor.begin(), factor.end());
  int64_t shards = 1;
  for (const ShardDigit& digit : digits) shards *= digit.size;
  std::vector<std::vector<int64_t>> holders(static_cast<size_t>(shards));
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    const auto coordinates = mesh.coordinates(rank);
    const bool lives = std::all_of(layout.at.begin(), layout.at.end(), [&](const PlacedAxis& place) {
      return digit_along(place.axis, mesh, coordinates) == place.index;
    });
    if (!lives) continue;
    for (int64_t shard = 0; shard < shards; ++shard) {
      int64_t minor = shards;
      const bool holds = std::all_of(digits.begin(), digits.end(), [&](const ShardDigit& digit) {
        minor /= digit.size;
        return !digit.axis || shard / minor % digit.size == digit_along(*digit.axis, mesh, coordinates);
      });
      if (holds) holders[static_cast<size_t>(shard)].push_back(rank);
    }
  }
  return holders;
}

ListedMesh mesh_of_lists(const std::vector<int64_t>& devices, const std::vector<DeviceList>& lists,
                         const std::optional<Mesh>& named) {
  check(std::is_sorted(devices.begin(), devices.end()), "devices are ascending");
  for (const DeviceList& list : lists)
    check(static_cast<int64_t>(list.holders.size()) == product(list.counts), "a list has an entry for each shard");
  const auto ranks = static_cast<int64_t>(devices.size());
  if (named && named->size() == ranks) {
    Layouts layouts = over(*named, lists, inverse(devices));
    if (count(layouts) == lists.size()) return {*named, devices, std::move(layouts)};
  }
  std::vector<std::vector<int64_t>> orders = {devices};
  constexpr size_t kMostOrders = 8;
  for (const DeviceList& list : lists) {
    if (orders.size() == kMostOrders) break;
    auto order = order_of(list, devices);
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
  }
  std::optional<ListedMesh> best;
  for (const auto& order : orders) {
    Found found = best_mesh(ranks, lists, inverse(order));
    if (!best || count(found.layouts) > count(best->layouts)) best = {found.mesh, order, std::move(found.layouts)};
    if (count(best->layouts) == lists.size()) break;
  }
  return *best;
}

}  // namespace tessera
