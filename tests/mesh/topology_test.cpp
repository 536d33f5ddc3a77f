#include "tessera/mesh/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr std::string_view kTwoHosts = R"({"axes": {
  "dp": [{"size": 3, "alpha": 0, "bandwidth": 1e9}],
  "tp": [{"size": 4, "alpha": 1e-6, "bandwidth": 5e9, "name": "shared memory"},
         {"size": 2, "alpha": 5e-5, "bandwidth": 1.25e8, "name": "ethernet"}]}})";

using test::error_of;

std::string parse_error(std::string_view json) {
  return error_of([&] { Topology::from_json(json, "cluster.json"); });
}

// The error of one level with that text.
std::string level_error(std::string_view level) {
  return parse_error(R"({"axes": {"tp": [)" + std::string(level) + "]}}");
}

TEST(Topology, reads_levels_the_nearest_first) {
  Topology topology = Topology::from_json(kTwoHosts);
  ASSERT_NE(topology.find("tp"), nullptr);
  const auto& levels = topology.find("tp")->levels;
  ASSERT_EQ(levels.size(), 2u);
  EXPECT_EQ(levels[0], (LinkLevel{4, 1e-6, 5e9, "shared memory"}));
  EXPECT_EQ(levels[1], (LinkLevel{2, 5e-5, 1.25e8, "ethernet"}));
  EXPECT_EQ(topology.find("pp"), nullptr);
}

TEST(Topology, reads_what_it_writes) {
  Topology topology = Topology::from_json(kTwoHosts);
  topology.axes[0].levels[0].alpha = 1.0 / 3;
  EXPECT_EQ(Topology::from_json(topology.to_json()).axes, topology.axes);
}

TEST(Topology, fits_a_mesh_whose_axes_have_the_products_of_its_sizes) {
  Topology topology = Topology::from_json(kTwoHosts, "cluster.json");
  EXPECT_NO_THROW(topology.require_fits(Mesh::parse("dp=3,pp=5,tp=8")));
  EXPECT_THAT(error_of([&] { topology.require_fits(Mesh::parse("dp=3,tp=4")); }),
              HasSubstr("[topology] cluster.json: the levels of axis 'tp' join 4 x 2 ranks, but the mesh has tp=4; "
                        "their sizes must multiply to 4"));
  EXPECT_THAT(error_of([&] { topology.require_fits(Mesh::parse("tp=8")); }),
              HasSubstr("cluster.json: the mesh 'tp=8' has no axis 'dp'"));
  topology.axes[1].levels = {{int64_t{1} << 40, 0, 1, ""}, {int64_t{1} << 40, 0, 1, ""}};
  EXPECT_THAT(error_of([&] { topology.require_fits(Mesh::parse("dp=3,tp=8")); }), HasSubstr("must multiply to 8"));
}

TEST(Topology, refuses_what_is_not_its_own) {
  EXPECT_THAT(parse_error("{"), HasSubstr("cluster.json is not JSON: parse error at line 1"));
  EXPECT_THAT(parse_error("[]"), HasSubstr("a topology is an object"));
  EXPECT_THAT(parse_error("{}"), HasSubstr("it has no 'axes'"));
  EXPECT_THAT(parse_error(R"({"axes": {}, "links": 3})"), HasSubstr("has no key 'links'; its only key is: axes"));
  EXPECT_THAT(parse_error(R"({"axes": [1]})"), HasSubstr("'axes' has type array, but must map axes to levels"));
  EXPECT_THAT(parse_error(R"({"axes": {"tp": []}})"), HasSubstr("axis 'tp' must have a list of at least one level"));
  EXPECT_THAT(parse_error(R"({"axes": {"tp": [{"size": 2, "alpha": 0, "bandwidth": 1}], "tp": 3}})"),
              HasSubstr("'tp' is given twice"));
}

TEST(Topology, refuses_levels_that_are_no_links) {
  EXPECT_THAT(level_error("3"), HasSubstr("axis 'tp', level 0 has type number, but must be an object"));
  EXPECT_THAT(level_error(R"({"size": 2, "alpha": 0})"), HasSubstr("axis 'tp', level 0 has no 'bandwidth'"));
  EXPECT_THAT(level_error(R"({"size": 0, "alpha": 0, "bandwidth": 1})"), HasSubstr("'size' is 0"));
  EXPECT_THAT(level_error(R"({"size": 1.5, "alpha": 0, "bandwidth": 1})"), HasSubstr("'size' is 1.5"));
  EXPECT_THAT(level_error(R"({"size": 2, "alpha": -1, "bandwidth": 1})"), HasSubstr("'alpha' is -1"));
  EXPECT_THAT(level_error(R"({"size": 2, "alpha": 0, "bandwidth": 0})"), HasSubstr("'bandwidth' is 0"));
  EXPECT_THAT(level_error(R"({"size": 2, "alpha": "1", "bandwidth": 1})"), HasSubstr("'alpha' has type string"));
  EXPECT_THAT(level_error(R"({"size": 2, "alpha": 0, "bandwidth": 1, "name": 1})"),
              HasSubstr("'name' has type number"));
  EXPECT_THAT(level_error(R"({"size": 2, "alpha": 0, "bandwidth": 1, "beta": 1})"), HasSubstr("has no key 'beta'"));
}

}  // namespace
}  // namespace tessera
