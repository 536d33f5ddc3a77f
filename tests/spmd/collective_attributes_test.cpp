// What communication nodes say: each operator's attributes come back as they were written, and each damage gives one
// error that names the node and the attribute.
#include "tessera/spmd/collective_attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/damaged_collectives.h"

namespace tessera::spmd {
namespace {

using testing::HasSubstr;

// A statement in which everything that the operator says differs from its default.
CollectiveAttributes full(const CollectiveTraits& traits) {
  CollectiveAttributes all{.kind = traits.kind, .axes = {"dp", "tp"}, .value = "h"};
  if (traits.message) all.step = "3";
  if (traits.kind == Collective::recv) all.dtype = DType::float16;
  if (traits.reduces) all.reduction = Reduction::max;
  if (traits.root != RootRole::none) all.root = 2;
  if (traits.kind == Collective::permute) all.targets = {1, -1, 0, 2, 5, 4};
  if (traits.joins) all.bucket = 7;
  const Expr extent = 4 - Expr::axis_index("tp");
  if (traits.block == BlockSide::both) {
    all.split_dim = 1;
    all.concat_dim = 0;
    all.split_extent = extent;
    all.concat_extent = Expr(3);
  } else if (traits.block != BlockSide::none) {
    all.dim = 1;
    all.extent = extent;
  }
  return all;
}

TEST(CollectiveAttributes, come_back_as_they_were_written) {
  const Mesh mesh = Mesh::parse("dp=2,tp=3");
  for (const CollectiveTraits& traits : collectives()) {
    SCOPED_TRACE(traits.op);
    Graph graph;
    Node* node = graph.add_node(traits.op, {graph.add_input("x", {DType::float32, Shape{8, 6}})}, {"y"}, kCommDomain);
    for (const CollectiveAttributes& all :
         {full(traits),
          CollectiveAttributes{.kind = traits.kind,
          .axes = {"tp"},
          .dtype = full(traits).dtype,
          .dim = full(traits).dim,
          .split_dim = full(traits).split_dim,
          .concat_dim = full(traits).concat_dim,
          .targets = full(traits).targets.empty() ? std::vector<int64_t>{} : std::vector<int64_t>{2, 0, 1}}}) {
      node->attributes = written(all);
      EXPECT_EQ(read_collective(*node, mesh), all);
      EXPECT_EQ(read_collective(*node), all);
      node->set(kOrderAttribute, std::string("position"));
      EXPECT_EQ(read_collective(*node, mesh), all);
    }
    EXPECT_EQ(written(full(traits)).size(), attributes_of(traits.kind).size()) << "all that it may say is written";
  }
}

TEST(CollectiveAttributes, damage_is_named) {
  const Mesh mesh = Mesh::parse("tp=2");
  for (const DamagedCollective& each : damaged_collectives()) {
    SCOPED_TRACE(each.what);
    Graph graph;
    EXPECT_THAT(refusal_of([&] { read_collective(*each.node_in(graph), mesh); }), HasSubstr(each.error));
  }
}

TEST(CollectiveAttributes, extents_are_those_stated_or_those_of_the_blocks) {
  Graph graph;
  const Expr own = 4 - Expr::axis_index("tp");
  Node* node = graph.add_node("ReduceScatter", {graph.add_input("x", {DType::float32, Shape{7}})}, {"y"}, kCommDomain);
  node->outputs[0]->type = {DType::float32, Shape{own}};
  CollectiveAttributes all{.kind = Collective::reduce_scatter, .axes = {"tp"}, .dim = 0};
  EXPECT_EQ(member_extents(all, *node).block, own);
  all.extent = Expr(2);
  EXPECT_EQ(member_extents(all, *node).block, Expr(2));
}

}  // namespace
}  // namespace tessera::spmd
