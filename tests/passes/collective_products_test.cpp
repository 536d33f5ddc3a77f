#include "tessera/passes/collective_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "passes/product_rings.h"
#include "spmd/compiled.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;
using testing::ElementsAre;

struct ProductsInRings {
  spmd::Program program;
  std::vector<std::string> notes;
};

ProductsInRings in_rings(std::string_view text, std::string_view mesh, const Compiled::Orders& orders,
                         const RingForm& form = {}) {
  ProductsInRings result{Compiled(text, mesh, orders).program(), {}};
  result.notes = put_products_in_rings(result.program, form);
  return result;
}

// Operators of communication nodes, in order, and to whom rank 0 sends.
std::vector<std::string> communicates(const spmd::Program& program, int64_t rank = 0) {
  std::vector<std::string> all;
  for (const auto& node : program.graph->nodes()) {
    if (node->domain != spmd::kCommDomain) continue;
    std::string text = node->op_type;
    if (text == "Send")
      text += fmt::format(
          " {}", *bind_rank((*node->inputs[1]->content)[0], program.mesh, program.mesh.coordinates(rank)).constant());
    all.push_back(text);
  }
  return all;
}

int nodes_of(const spmd::Program& program, std::string_view op_type) {
  return static_cast<int>(std::count_if(program.graph->nodes().begin(), program.graph->nodes().end(),
                                        [&](const auto& node) { return node->op_type == op_type; }));
}

// The reasons why collectives have no ring.
std::vector<std::string> reasons_of(std::string_view text, std::string_view mesh, const Compiled::Orders& orders) {
  std::vector<std::string> all;
  for (const ProductCollective& each : product_collectives(Compiled(text, mesh, orders).program()))
    all.push_back(each.is_candidate() ? "" : std::get<std::string>(each.site));
  return all;
}

constexpr std::string_view kRows = "m (float[12, 8] x) => (float[12, 6] y) <float[8, 6] w> { y = MatMul (x, w) }";
const Compiled::Orders kGathersRows = {{"x", "[t, -]"}, {"w", "[-, t]"}, {"y", "[-, t]"}};
const Compiled::Orders kScattersRows = {{"x", "[-, t]"}, {"w", "[t, -]"}, {"y", "[t, -]"}};

TEST(CollectiveProducts, passes_gathered_blocks_on_beside_their_products) {
  const ProductsInRings result = in_rings(kRows, "t=3", kGathersRows);
  EXPECT_THAT(communicates(result.program), ElementsAre("Send 1", "Recv", "Send 1", "Recv"));
  EXPECT_EQ(nodes_of(result.program, "MatMul"), 3);
  EXPECT_THAT(result.notes,
              ElementsAre("1 all-gather goes over t in a ring, beside its products (one way, whole blocks)"));
  EXPECT_THAT(result.program.reshards.front().steps, ElementsAre("Ring t"));
}

TEST(CollectiveProducts, pass_blocks_both_ways_at_once) {
  const ProductsInRings result = in_rings(kRows, "t=4", kGathersRows, {.both_ways = true});
  EXPECT_THAT(communicates(result.program), ElementsAre("Send 1", "Recv", "Send 3", "Recv", "Send 1", "Recv"));
  EXPECT_EQ(nodes_of(result.program, "MatMul"), 4);
}

TEST(CollectiveProducts, sends_blocks_in_pieces) {
  const ProductsInRings result = in_rings(kRows, "t=2", kGathersRows, {.pieces = 3});
  EXPECT_THAT(communicates(result.program), ElementsAre("Send 1", "Recv", "Send 1", "Recv", "Send 1", "Recv"));
  EXPECT_EQ(nodes_of(result.program, "MatMul"), 6);
}

TEST(CollectiveProducts, sends_sums_of_products_to_their_owners) {
  const ProductsInRings result = in_rings(kRows, "t=3", kScattersRows);
  EXPECT_THAT(communicates(result.program), ElementsAre("Send 1", "Recv", "Send 1", "Recv"));
  EXPECT_EQ(nodes_of(result.program, "MatMul"), 3);
  EXPECT_EQ(nodes_of(result.program, "Add"), 2);
  EXPECT_THAT(result.notes,
              ElementsAre("1 reduce-scatter goes over t in a ring, beside its products (one way, whole blocks)"));
}

TEST(CollectiveProducts, sends_sums_both_ways_at_once) {
  const ProductsInRings result = in_rings(kRows, "t=4", kScattersRows, {.both_ways = true});
  EXPECT_THAT(communicates(result.program), ElementsAre("Send 1", "Recv", "Send 1", "Send 3", "Recv", "Recv"));
}

constexpr std::string_view kTwo =
    "m (float[12, 8] x) => (float[12, 6] y, float[12, 6] z) <float[8, 6] v, float[8, 6] w> {\n"
    "  y = MatMul (x, v)\n  z = MatMul (x, w)\n}";

TEST(CollectiveProducts, share_one_gather) {
  const ProductsInRings result =
      in_rings(kTwo, "t=3", {{"x", "[t, -]"}, {"v", "[-, t]"}, {"w", "[-, t]"}, {"y", "[-, t]"}, {"z", "[-, t]"}});
  EXPECT_EQ(nodes_of(result.program, "Recv"), 2);
  EXPECT_EQ(nodes_of(result.program, "MatMul"), 6);
}

TEST(CollectiveProducts, gives_other_readers_the_blocks_joined) {
  const ProductsInRings result = in_rings(
      "m (float[12, 8] x) => (float[12, 6] y, float[8, 12] z)\n"
      "  <float[8, 6] w, int64[2] s = {8, 12}> { y = MatMul (x, w)\n z = Reshape (x, s) }",
      "t=3", {{"x", "[t, -]"}, {"w", "[-, t]"}, {"y", "[-, t]"}, {"z", "[-, -]"}});
  EXPECT_EQ(nodes_of(result.program, "AllGather"), 0);
  EXPECT_EQ(nodes_of(result.program, "Concat"), 2);
}

// Each piece of x·xᵀ needs all blocks.
TEST(CollectiveProducts, leaves_products_that_read_the_gathered_value_twice) {
  const ProductsInRings result = in_rings(
      "m (float[12, 8] x) => (float[12, 12] y) {\n  g = Identity (x)\n  t = Transpose (g)\n  y = MatMul (g, t)\n}",
      "t=3", {{"x", "[t, -]"}, {"g", "[-, -]"}, {"t", "[-, -]"}, {"y", "[-, -]"}});
  result.program.graph->verify("rings");
  EXPECT_EQ(nodes_of(result.program, "MatMul"), 1);
  EXPECT_THAT(communicates(result.program), ElementsAre("AllGather"));
}

TEST(CollectiveProducts, give_reasons_for_staying) {
  EXPECT_THAT(
      reasons_of("m (float[12, 8] x) => (float[12, 8] y) { y = Relu (x) }", "t=3", {{"x", "[t, -]"}, {"y", "[-, -]"}}),
      ElementsAre("no product reads it"));
  EXPECT_THAT(
      reasons_of("m (float[12, 8] x) => (float[8] y) <int64[1] a = {0}> { y = ReduceMax <keepdims = 0> (x, a) }", "t=3",
                 {{"x", "[t, -]"}, {"y", "[-]"}}),
      ElementsAre("it reduces otherwise than by sum"));
  // Three members have no block each of two rows, and of two columns.
  EXPECT_THAT(reasons_of("m (float[2, 9] x) => (float[2, 2] y) <float[9, 2] w> { y = MatMul (x, w) }", "t=3",
                         {{"x", "[-, t]"}, {"w", "[t, -]"}, {"y", "[-, -]"}}),
              ElementsAre("the product cannot be computed in as many pieces along one dimension"));
}

// Two hosts of two ranks: what arrives from the other host is shared within the own one.
TEST(CollectiveProducts, go_around_units_of_near_members) {
  const ProductsInRings gathers =
      in_rings(kRows, "h=2,t=2", {{"x", "[{h,t}, -]"}, {"w", "[-, {h,t}]"}, {"y", "[-, {h,t}]"}}, {.units = 2});
  EXPECT_THAT(communicates(gathers.program), ElementsAre("AllGather", "Send 2", "Recv", "AllGather"));
  EXPECT_EQ(nodes_of(gathers.program, "MatMul"), 2);
  const ProductsInRings scatters =
      in_rings(kRows, "h=2,t=2", {{"x", "[-, {h,t}]"}, {"w", "[{h,t}, -]"}, {"y", "[{h,t}, -]"}}, {.units = 2});
  EXPECT_THAT(communicates(scatters.program), ElementsAre("ReduceScatter", "Send 2", "Recv", "ReduceScatter"));
  EXPECT_EQ(nodes_of(scatters.program, "MatMul"), 2);
  EXPECT_THAT(scatters.notes, ElementsAre("1 reduce-scatter goes over h,t in a ring, beside its products (one way, "
                                          "whole blocks, 2 units of near ranks)"));
}

const Compiled::Orders kReducesRows = {{"x", "[-, t]"}, {"w", "[t, -]"}, {"y", "[-, -]"}};

TEST(CollectiveProducts, sums_blocks_of_an_all_reduce_in_a_ring_and_gathers_them) {
  const ProductsInRings result = in_rings(kRows, "t=3", kReducesRows);
  EXPECT_THAT(communicates(result.program), ElementsAre("Send 1", "Recv", "Send 1", "Recv", "AllGather"));
  EXPECT_EQ(nodes_of(result.program, "MatMul"), 3);
  EXPECT_THAT(result.notes,
              ElementsAre("1 all-reduce goes over t in a ring, beside its products (one way, whole blocks)"));
  EXPECT_THAT(result.program.reshards.front().steps, ElementsAre("Ring t", "AllGather t"));
}

// 6 columns are divided among 4 members less evenly than 12 rows.
TEST(CollectiveProducts, divide_an_all_reduce_along_the_most_even_dimension) {
  constexpr std::string_view text = "m (float[6, 8] x) => (float[6, 12] y) <float[8, 12] w> { y = MatMul (x, w) }";
  for (const ProductCollective& each : product_collectives(Compiled(text, "t=4", kReducesRows).program()))
    EXPECT_EQ(std::get<ProductReduce>(each.site).dim, 1U);
}

TEST(CollectiveProducts, gather_sums_beside_the_products_that_read_them) {
  const ProductsInRings result = in_rings(
      "m (float[12, 8] x) => (float[12, 6] z) <float[8, 6] w, float[6, 6] v> {\n"
      "  y = MatMul (x, w)\n  z = MatMul (y, v)\n}",
      "t=3", {{"x", "[-, t]"}, {"w", "[t, -]"}, {"y", "[-, -]"}, {"v", "[-, t]"}, {"z", "[-, t]"}},
      {.both_halves = true});
  EXPECT_THAT(communicates(result.program),
              ElementsAre("Send 1", "Recv", "Send 1", "Recv", "Send 1", "Recv", "Send 1", "Recv"));
  EXPECT_EQ(nodes_of(result.program, "MatMul"), 6);
  EXPECT_THAT(result.program.reshards.front().steps, ElementsAre("Ring t", "Ring t"));
}

}  // namespace
}  // namespace tessera::passes
