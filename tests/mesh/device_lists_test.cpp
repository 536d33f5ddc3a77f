// Lists of devices and layouts over meshes say the same.
#include "tessera/mesh/device_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mesh/random_sharding.h"

namespace tessera {
namespace {

using testing::ElementsAre;

DeviceList list(std::vector<int64_t> counts, std::vector<std::vector<int64_t>> holders) {
  return {std::move(counts), std::move(holders)};
}

// Who holds the shards of a layout that was found, by device.
std::vector<std::vector<int64_t>> found_holders(const ListedMesh& found, size_t index) {
  auto holders = holders_of(*found.layouts[index], found.mesh);
  for (auto& ranks : holders) {
    for (int64_t& rank : ranks) rank = found.devices[static_cast<size_t>(rank)];
    std::sort(ranks.begin(), ranks.end());
  }
  return holders;
}

ListedMesh expect_found(const std::vector<int64_t>& devices, const std::vector<DeviceList>& lists,
                        const std::optional<Mesh>& named = std::nullopt) {
  ListedMesh found = mesh_of_lists(devices, lists, named);
  EXPECT_EQ(found.mesh.size(), static_cast<int64_t>(devices.size()));
  for (size_t i = 0; i < lists.size(); ++i) {
    EXPECT_TRUE(found.layouts[i]) << i;
    if (!found.layouts[i]) continue;
    EXPECT_EQ(found_holders(found, i), lists[i].holders) << i;
  }
  return found;
}

TEST(DeviceLists, OneSplitIsOneAxis) {
  const ListedMesh found = expect_found({0, 1, 2, 3}, {list({4}, {{0}, {1}, {2}, {3}}), list({}, {{0, 1, 2, 3}})});
  EXPECT_EQ(found.mesh.str(), "d=4");
}

TEST(DeviceLists, GroupsAndTwoSplitsGiveTwoAxes) {
  EXPECT_EQ(expect_found({0, 1, 2, 3}, {list({2}, {{0, 1}, {2, 3}}), list({2}, {{0, 2}, {1, 3}})}).mesh.str(),
            "d0=2,d1=2");
  EXPECT_EQ(expect_found({0, 1, 2, 3}, {list({2, 2}, {{0}, {1}, {2}, {3}})}).mesh.str(), "d0=2,d1=2");
  EXPECT_EQ(expect_found({0, 1, 2, 3, 4, 5}, {list({2}, {{0, 1, 2}, {3, 4, 5}})}).mesh.str(), "d0=2,d1=3");
}

TEST(DeviceLists, WhatNoChainOfDivisorsServesHasSubAxes) {
  const ListedMesh found =
      expect_found({0, 1, 2, 3, 4, 5}, {list({2}, {{0, 1, 2}, {3, 4, 5}}), list({3}, {{0, 1}, {2, 3}, {4, 5}})});
  EXPECT_EQ(found.mesh.str(), "d=6");
}

TEST(DeviceLists, ShardsDealtOutInTurnAreDigitsOfTheirNumber) {
  const ListedMesh found = expect_found({0, 1}, {list({4}, {{0}, {1}, {0}, {1}})});
  ASSERT_EQ(found.layouts[0]->factors[0].size(), 2U);
  EXPECT_FALSE(found.layouts[0]->factors[0][0].axis);
  EXPECT_EQ(found.layouts[0]->factors[0][1].axis->axis, "d");
}

TEST(DeviceLists, SomeOfTheDevicesAreAPlace) {
  const ListedMesh found = expect_found({0, 1, 2, 3}, {list({2}, {{0}, {1}}), list({2}, {{2}, {3}})});
  EXPECT_EQ(found.mesh.str(), "d0=2,d1=2");
  EXPECT_THAT(found.layouts[1]->at, ElementsAre(PlacedAxis{{"d0", 1, 2}, 1}));
}

TEST(DeviceLists, RanksAreInTheOrderThatFitsMost) {
  const ListedMesh found = expect_found({2, 5, 7}, {list({3}, {{7}, {2}, {5}})});
  EXPECT_THAT(found.devices, ElementsAre(7, 2, 5));
  EXPECT_THAT(expect_found({2, 5, 7}, {list({3}, {{2}, {5}, {7}})}).devices, ElementsAre(2, 5, 7));
}

TEST(DeviceLists, WhatFitsNoMeshIsSaid) {
  const ListedMesh found = mesh_of_lists({0, 1, 2, 3}, {list({3}, {{0}, {1}, {2}}), list({4}, {{0}, {1}, {2}, {3}})});
  EXPECT_FALSE(found.layouts[0]);
  EXPECT_TRUE(found.layouts[1]);
}

TEST(DeviceLists, ANamedMeshIsTakenIfAllFit) {
  const std::vector<DeviceList> split = {list({2}, {{0, 1}, {2, 3}})};
  EXPECT_EQ(expect_found({0, 1, 2, 3}, split, Mesh::parse("dp=2,tp=2")).mesh.str(), "dp=2,tp=2");
  EXPECT_EQ(expect_found({0, 1, 2, 3}, split, Mesh::parse("dp=4")).mesh.str(), "d0=2,d1=2");
  EXPECT_EQ(expect_found({0, 1, 2, 3}, split, Mesh::parse("dp=2,tp=3")).mesh.str(), "d0=2,d1=2");
  EXPECT_EQ(expect_found({3}, {list({}, {{3}})}).mesh.size(), 1);
}

// Every layout over a mesh of at most three axes is found again from its list, whatever else is said.
TEST(DeviceLists, LayoutsAreFoundAgain) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 engine(seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<MeshAxis> axes;
    for (size_t a = 0, count = 1 + any_of(3, engine); a < count; ++a)
      axes.push_back({std::string(1, static_cast<char>('a' + a)), static_cast<int64_t>(2 + any_of(2, engine))});
    const Mesh mesh(axes);
    std::vector<int64_t> devices;
    for (int64_t rank = 0; rank < mesh.size(); ++rank) devices.push_back(2 * rank + 1);
    std::vector<DeviceList> lists;
    for (size_t l = 0, count = 1 + any_of(4, engine); l < count; ++l) {
      ListedLayout layout;
      layout.factors.resize(1 + any_of(2, engine));
      std::vector<MeshAxis> unused = axes;
      std::shuffle(unused.begin(), unused.end(), engine);
      for (const MeshAxis& axis : unused) {
        if (chance(engine, 3)) continue;
        if (chance(engine, 2)) {
          layout.at.push_back({AxisRef::whole(axis), static_cast<int64_t>(any_of(axis.size, engine))});
          continue;
        }
        auto& digits = layout.factors[any_of(layout.factors.size(), engine)];
        if (digits.empty() && chance(engine, 2)) digits.push_back({2, std::nullopt});
        digits.push_back({axis.size, AxisRef::whole(axis)});
      }
      DeviceList made;
      for (const auto& digits : layout.factors) {
        made.counts.push_back(1);
        for (const ShardDigit& digit : digits) made.counts.back() *= digit.size;
      }
      made.holders = holders_of(layout, mesh);
      for (auto& holders : made.holders)
        for (int64_t& holder : holders) holder = devices[static_cast<size_t>(holder)];
      lists.push_back(std::move(made));
    }
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", mesh " << mesh.str());
    EXPECT_EQ(expect_found(devices, lists, mesh).mesh.str(), mesh.str());
    expect_found(devices, {lists.front()});
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
