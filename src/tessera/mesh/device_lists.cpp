#include "tessera/mesh/device_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::string_view kAxis = "d";

// The orders of a number's prime factors, up to `most` of them.
std::vector<std::vector<int64_t>> orders_of_primes(int64_t number, size_t most) {
  std::vector<int64_t> primes;
  for (int64_t factor = 2; number > 1; ++factor)
    for (; number % factor == 0; number /= factor) primes.push_back(factor);
  std::vector<std::vector<int64_t>> orders;
  do orders.push_back(primes);
  while (orders.size() < most && std::next_permutation(primes.begin(), primes.end()));
  return orders;
}

int64_t product(const std::vector<int64_t>& numbers) {
  int64_t result = 1;
  for (int64_t number : numbers) result *= number;
  return result;
}

using Holders = std::vector<std::vector<int64_t>>;  // ranks of each shard's holders

// A mesh and the coordinates of all its ranks.
struct Coordinates {
  explicit Coordinates(const Mesh& of) : mesh(of) {
    for (int64_t rank = 0; rank < mesh.size(); ++rank) of_rank.push_back(mesh.coordinates(rank));
  }

  const Mesh& mesh;
  std::vector<std::vector<int64_t>> of_rank;
};

// Finds a layout over given axes, whole ones, by matching the digits of shards' numbers with those of their holders.
class Fitter {
 public:
  Fitter(const std::vector<int64_t>& counts, const Holders& holders, const Coordinates& coordinates)
      : counts_(counts),
        holders_(holders),
        coordinates_(coordinates),
        axes_(coordinates.mesh.axes()),
        used_(axes_.size(), false) {}

  std::optional<ListedLayout> fit() {
    layout_.factors.resize(counts_.size());
    if (!assign(0, counts_.empty() ? 1 : counts_[0])) return std::nullopt;
    return layout_;
  }

 private:
  // Whether the digit of the number along factor `f` that counts groups of `minor` shards is that of all holders.
  bool is_digit(size_t axis, size_t f, int64_t minor) const {
    for (size_t g = f + 1; g < counts_.size(); ++g) minor *= counts_[g];
    const int64_t size = axes_[axis].size;
    for (size_t s = 0; s < holders_.size(); ++s)
      for (int64_t rank : holders_[s])
        if (static_cast<int64_t>(s) / minor % size != coordinates_.of_rank[static_cast<size_t>(rank)][axis])
          return false;
    return true;
  }

  // Finds the remaining digits of factor `f`, whose digits above the last `rest` shards are known, and those of later
  // factors.
  bool assign(size_t f, int64_t rest) {
    if (f == counts_.size()) return place();
    if (rest == 1) return assign(f + 1, f + 1 < counts_.size() ? counts_[f + 1] : 1);
    auto& digits = layout_.factors[f];
    for (size_t a = 0; a < used_.size(); ++a) {
      const int64_t size = axes_[a].size;
      if (used_[a] || size == 1 || rest % size != 0 || !is_digit(a, f, rest / size)) continue;
      used_[a] = true;
      digits.push_back({size, AxisRef::whole(axes_[a])});
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

  // Along an axis without a digit, the holders of each shard are everywhere or at one index. All holders have their
  // shards' digits, so counting them is enough.
  bool place() {
    layout_.at.clear();
    int64_t copies = 1;  // of each shard
    for (size_t a = 0; a < used_.size(); ++a) {
      if (used_[a]) continue;
      std::set<int64_t> indices;
      for (const auto& shard : holders_)
        for (int64_t rank : shard) indices.insert(coordinates_.of_rank[static_cast<size_t>(rank)][a]);
      if (indices.size() == 1 && axes_[a].size > 1)
        layout_.at.push_back({AxisRef::whole(axes_[a]), *indices.begin()});
      else
        copies *= axes_[a].size;
    }
    return std::all_of(holders_.begin(), holders_.end(),
                       [&](const auto& shard) { return static_cast<int64_t>(shard.size()) == copies; });
  }

  const std::vector<int64_t>& counts_;
  const Holders& holders_;
  const Coordinates& coordinates_;
  const std::vector<MeshAxis>& axes_;
  std::vector<bool> used_;
  ListedLayout layout_;
};

// Whether the holders could have a layout over some mesh: all shards have equally many holders, and all holders equally
// many shards.
bool is_regular(const DeviceList& list, int64_t ranks) {
  std::map<int64_t, int64_t> shards;  // number of shards of each device
  for (const auto& holders : list.holders) {
    if (holders.size() != list.holders.front().size()) return false;
    for (int64_t device : holders) ++shards[device];
  }
  return ranks % static_cast<int64_t>(shards.size()) == 0 &&
         std::all_of(shards.begin(), shards.end(),
                     [&](const auto& entry) { return entry.second == shards.begin()->second; });
}

Holders ranks_of_holders(const DeviceList& list, const std::map<int64_t, int64_t>& rank_of) {
  Holders ranks;
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

// A list, and its holders by rank.
struct Asked {
  const DeviceList* list;
  Holders holders;
};

Layouts over(const Mesh& mesh, const std::vector<Asked>& lists) {
  const Coordinates coordinates(mesh);
  Layouts layouts;
  for (const Asked& asked : lists)
    layouts.push_back(asked.holders.empty() ? std::nullopt
                                            : Fitter(asked.list->counts, asked.holders, coordinates).fit());
  return layouts;
}

size_t count(const Layouts& layouts) {
  return static_cast<size_t>(std::count_if(layouts.begin(), layouts.end(), [](const auto& one) { return !!one; }));
}

// Replaces axes of a factorization of the only axis by its sub-axes.
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

// Joins neighbouring axes as long as equally many lists are layouts over them.
Found coarsest(std::vector<int64_t> sizes, const std::vector<Asked>& lists, Layouts layouts) {
  for (size_t a = 0; a + 1 < sizes.size();) {
    std::vector<int64_t> joined = sizes;
    joined[a] *= joined[a + 1];
    joined.erase(joined.begin() + static_cast<int64_t>(a) + 1);
    Layouts found = over(mesh_with(joined), lists);
    if (count(found) == count(layouts)) {
      sizes = std::move(joined);
      layouts = std::move(found);
    } else {
      ++a;
    }
  }
  return {mesh_with(sizes), std::move(layouts)};
}

// The coarsest mesh over whose axes the most lists are layouts; if no mesh is best for all, sub-axes of a single axis.
// A list that is not a layout over a mesh with prime sizes is not one over a coarser mesh, either.
Found best_mesh(int64_t ranks, const std::vector<Asked>& lists) {
  if (ranks == 1) return {Mesh(), over(Mesh(), lists)};
  constexpr size_t kMostOrders = 256;
  const auto possible = static_cast<size_t>(
      std::count_if(lists.begin(), lists.end(), [](const Asked& asked) { return !asked.holders.empty(); }));
  std::vector<int64_t> best;
  Layouts of_best;
  std::vector<std::optional<std::vector<int64_t>>> own(lists.size());  // axis sizes that suit each list
  for (const auto& sizes : orders_of_primes(ranks, kMostOrders)) {
    Layouts layouts = over(mesh_with(sizes), lists);
    for (size_t i = 0; i < lists.size(); ++i)
      if (!own[i] && layouts[i]) own[i] = sizes;
    if (best.empty() || count(layouts) > count(of_best)) {
      best = sizes;
      of_best = std::move(layouts);
    }
    if (count(of_best) == possible) break;
  }
  const auto suited = static_cast<size_t>(std::count_if(own.begin(), own.end(), [](const auto& one) { return !!one; }));
  if (suited == count(of_best)) return coarsest(best, lists, std::move(of_best));
  Found each{mesh_with({ranks}), Layouts(lists.size())};
  for (size_t i = 0; i < lists.size(); ++i) {
    if (!own[i]) continue;
    const std::vector<Asked> alone = {lists[i]};
    const Found found = coarsest(*own[i], alone, over(mesh_with(*own[i]), alone));
    each.layouts[i] = as_sub_axes(*found.layouts[0], found.mesh, each.mesh);
  }
  return each;
}

std::map<int64_t, int64_t> inverse(const std::vector<int64_t>& devices) {
  std::map<int64_t, int64_t> rank_of;
  for (size_t rank = 0; rank < devices.size(); ++rank) rank_of.emplace(devices[rank], static_cast<int64_t>(rank));
  return rank_of;
}

// The devices in the order in which a list first names them, then those that it does not name.
std::vector<int64_t> order_of(const DeviceList& list, const std::vector<int64_t>& devices) {
  std::vector<int64_t> order;
  std::set<int64_t> seen;
  auto add = [&](int64_t device) {
    if (seen.insert(device).second) order.push_back(device);
  };
  for (const auto& shard : list.holders) std::for_each(shard.begin(), shard.end(), add);
  std::for_each(devices.begin(), devices.end(), add);
  return order;
}

}  // namespace

std::vector<std::vector<int64_t>> holders_of(const ListedLayout& layout, const Mesh& mesh) {
  std::vector<ShardDigit> digits;
  for (const auto& factor : layout.factors) digits.insert(digits.end(), factor.begin(), factor.end());
  size_t shards = 1;
  for (const ShardDigit& digit : digits) shards *= static_cast<size_t>(digit.size);
  std::vector<std::vector<int64_t>> holders(shards);
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    const auto coordinates = mesh.coordinates(rank);
    const bool lives = std::all_of(layout.at.begin(), layout.at.end(), [&](const PlacedAxis& place) {
      return digit_along(place.axis, mesh, coordinates) == place.index;
    });
    if (!lives) continue;
    std::vector<int64_t> held = {0};  // shard numbers by the digits so far
    for (const ShardDigit& digit : digits) {
      std::vector<int64_t> longer;
      for (int64_t shard : held)
        for (int64_t value = 0; value < digit.size; ++value)
          if (!digit.axis || value == digit_along(*digit.axis, mesh, coordinates))
            longer.push_back(shard * digit.size + value);
      held = std::move(longer);
    }
    for (int64_t shard : held) holders[static_cast<size_t>(shard)].push_back(rank);
  }
  return holders;
}

ListedMesh mesh_of_lists(const std::vector<int64_t>& devices, const std::vector<DeviceList>& lists,
                         const std::optional<Mesh>& named) {
  check(std::is_sorted(devices.begin(), devices.end()), "devices are ascending");
  for (const DeviceList& list : lists)
    check(static_cast<int64_t>(list.holders.size()) == product(list.counts), "a list has an entry for each shard");
  const auto ranks = static_cast<int64_t>(devices.size());
  std::vector<bool> regular;
  for (const DeviceList& list : lists) regular.push_back(is_regular(list, ranks));
  auto asked = [&](const std::map<int64_t, int64_t>& rank_of) {
    std::vector<Asked> all;
    for (size_t i = 0; i < lists.size(); ++i)
      all.push_back({&lists[i], regular[i] ? ranks_of_holders(lists[i], rank_of) : Holders()});
    return all;
  };
  if (named && named->size() == ranks) {
    Layouts layouts = over(*named, asked(inverse(devices)));
    if (count(layouts) == lists.size()) return {*named, devices, std::move(layouts)};
  }
  std::vector<std::vector<int64_t>> orders = {devices};
  constexpr size_t kMostOrders = 8;
  for (size_t i = 0; i < lists.size() && orders.size() < kMostOrders; ++i) {
    if (!regular[i]) continue;
    auto order = order_of(lists[i], devices);
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
  }
  const auto possible = static_cast<size_t>(std::count(regular.begin(), regular.end(), true));
  std::optional<ListedMesh> best;
  for (const auto& order : orders) {
    Found found = best_mesh(ranks, asked(inverse(order)));
    if (!best || count(found.layouts) > count(best->layouts)) best = {found.mesh, order, std::move(found.layouts)};
    if (count(best->layouts) == possible) break;
  }
  return *best;
}

}  // namespace tessera
