#include "tessera/spmd/reshard/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::spmd {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A layout of a matrix: which axes split each dimension, major first, and over which it is a sum.
struct Layout {
  std::vector<int> dims[2];
  std::vector<int> sums;
};

// All layouts of a matrix over a mesh, and the fewest elements that any steps receive from one to the other, by way of
// layouts with axes of these two. It shares nothing with the planner: it knows what one collective can do, and tries
// all sequences of them (Floyd and Warshall).
class AllLayouts {
 public:
  AllLayouts(std::string_view mesh, const Dims& dims) : mesh_(Mesh::parse(mesh)), dims_(dims) {
    add({}, 0);
    const size_t n = layouts_.size();
    std::vector<std::vector<double>> one_step(n, std::vector<double>(n, kNever));
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b) one_step[a][b] = a == b ? 0 : by_one_step(layouts_[a], layouts_[b]);
    for (int among = 0; among < 1 << mesh_.axes().size(); ++among) {
      auto& fewest = fewest_.emplace_back(one_step);
      for (size_t k = 0; k < n; ++k)
        if ((axes_of(k) & ~among) == 0)
          for (size_t a = 0; a < n; ++a)
            for (size_t b = 0; b < n; ++b) fewest[a][b] = std::min(fewest[a][b], fewest[a][k] + fewest[k][b]);
    }
  }

  const Mesh& mesh() const { return mesh_; }
  size_t size() const { return layouts_.size(); }
  double fewest(size_t from, size_t to) const { return fewest_[axes_of(from) | axes_of(to)][from][to]; }
  Sharding sharding(size_t index) const {
    Sharding result = Sharding::replicated(Shape(dims_.begin(), dims_.end()));
    for (int d : {0, 1})
      for (int axis : layouts_[index].dims[d]) result.dims[d].parts[0].axes.push_back(named(axis));
    for (int axis : layouts_[index].sums) result.partial.push_back({named(axis), Reduction::sum});
    return result;
  }

 private:
  // One bit for each axis that the layout uses.
  int axes_of(size_t index) const {
    int bits = 0;
    for (int axis = 0; axis < static_cast<int>(mesh_.axes().size()); ++axis)
      bits |= is_used(layouts_[index], axis) ? 1 << axis : 0;
    return bits;
  }
  AxisRef named(int axis) const { return AxisRef::whole(mesh_.axes()[axis]); }
  int64_t ranks(const std::vector<int>& axes) const {
    int64_t count = 1;
    for (int axis : axes) count *= mesh_.axes()[axis].size;
    return count;
  }

  // Every axis at every place.
  void add(const Layout& layout, int axis) {
    if (axis == static_cast<int>(mesh_.axes().size())) {
      layouts_.push_back(layout);
      return;
    }
    add(layout, axis + 1);
    Layout sum = layout;
    sum.sums.push_back(axis);
    add(sum, axis + 1);
    for (int d : {0, 1})
      for (size_t place = 0; place <= layout.dims[d].size(); ++place) {
        Layout split = layout;
        split.dims[d].insert(split.dims[d].begin() + static_cast<ptrdiff_t>(place), axis);
        add(split, axis + 1);
      }
  }

  double elements(const Layout& layout) const {
    double result = 1;
    for (int d : {0, 1}) {
      int64_t extent = dims_[d];
      for (int axis : layout.dims[d]) extent = (extent + mesh_.axes()[axis].size - 1) / mesh_.axes()[axis].size;
      result *= static_cast<double>(extent);
    }
    return result;
  }

  static bool begins_with(const std::vector<int>& longer, const std::vector<int>& shorter) {
    return shorter.size() <= longer.size() && std::equal(shorter.begin(), shorter.end(), longer.begin());
  }
  static std::vector<int> rest(const std::vector<int>& longer, const std::vector<int>& shorter) {
    return {longer.begin() + static_cast<ptrdiff_t>(shorter.size()), longer.end()};
  }
  static bool is_used(const Layout& layout, int axis) {
    auto has = [&](const std::vector<int>& axes) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
    return has(layout.dims[0]) || has(layout.dims[1]) || has(layout.sums);
  }

  double by_one_step(const Layout& a, const Layout& b) const {
    auto blocks = [&](const Layout& whole, const std::vector<int>& axes) {
      return elements(whole) - std::floor(elements(whole) / static_cast<double>(ranks(axes)));
    };
    std::vector<int> gone;
    std::set_difference(a.sums.begin(), a.sums.end(), b.sums.begin(), b.sums.end(), std::back_inserter(gone));
    if (a.sums.size() != b.sums.size() + gone.size()) return kNever;
    const bool same[] = {a.dims[0] == b.dims[0], a.dims[1] == b.dims[1]};
    if (!gone.empty()) {
      if (same[0] && same[1]) return 2 * blocks(a, gone);
      for (int d : {0, 1}) {
        if (!same[1 - d] || !begins_with(b.dims[d], a.dims[d])) continue;
        std::vector<int> gained = rest(b.dims[d], a.dims[d]);
        std::sort(gained.begin(), gained.end());
        if (gained == gone) return blocks(a, gone);
      }
      return kNever;
    }
    for (int d : {0, 1}) {
      const int e = 1 - d;
      if (same[e] && begins_with(a.dims[d], b.dims[d])) return blocks(b, rest(a.dims[d], b.dims[d]));
      if (same[e] && begins_with(b.dims[d], a.dims[d])) {
        const std::vector<int> gained = rest(b.dims[d], a.dims[d]);
        if (std::none_of(gained.begin(), gained.end(), [&](int axis) { return is_used(a, axis); })) return 0;
      }
      if (!same[d] && begins_with(a.dims[d], b.dims[d]) && begins_with(b.dims[e], a.dims[e]) &&
          rest(a.dims[d], b.dims[d]) == rest(b.dims[e], a.dims[e]))
        return blocks(a, rest(a.dims[d], b.dims[d]));
    }
    for (int d : {0, 1}) {
      if (same[d]) continue;
      if (ranks(a.dims[d]) != ranks(b.dims[d]) || dims_[d] % ranks(a.dims[d]) != 0) return kNever;
      for (int axis : b.dims[d])
        if (std::find(a.sums.begin(), a.sums.end(), axis) != a.sums.end()) return kNever;
    }
    return elements(a);
  }

  Mesh mesh_;
  Dims dims_;
  std::vector<Layout> layouts_;
  std::vector<std::vector<std::vector<double>>> fewest_;  // by the axes that layouts on the way may use
};

// Every layout of a matrix into every other, over meshes of one to three axes: no other steps receive fewer elements.
TEST(ReshardSearch, PlansMoveTheFewestElementsThatAnyStepsMove) {
  size_t pairs = 0;
  for (const auto& [mesh, dims] : std::vector<std::pair<std::string, Dims>>{{"x=4", {8, 12}},
                                                                            {"x=2,y=2", {8, 12}},
                                                                            {"x=4,y=2", {16, 24}},
                                                                            {"x=2,y=3", {12, 18}},
                                                                            {"x=2,y=3", {7, 11}},
                                                                            {"x=2,y=2", {7, 9}},
                                                                            {"x=2,y=3,z=2", {24, 12}}}) {
    const AllLayouts all(mesh, dims);
    for (size_t from = 0; from < all.size(); ++from)
      for (size_t to = 0; to < all.size(); ++to) {
        if (all.fewest(from, to) == kNever) continue;                         // into a sum
        if (all.mesh().axes().size() == 3 && (from + to) % 5 != 0) continue;  // for time's sake
        const auto plan = plan_reshard(all.sharding(from), all.sharding(to));
        ++pairs;
        EXPECT_LE(elements_received(plan), all.fewest(from, to) + 1e-9)
            << mesh << ": " << all.sharding(from).str(all.mesh()) << " to " << all.sharding(to).str(all.mesh());
        if (HasFailure()) return;
      }
  }
  EXPECT_GT(pairs, 2000U);
}

}  // namespace
}  // namespace tessera::spmd
