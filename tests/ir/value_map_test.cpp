#include "tessera/ir/value_map.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(ValueMap, knows_what_was_noted) {
  Graph graph;
  const Value* a = graph.add_input("a", {DType::float32, Shape{2}});
  const Value* b = graph.add_input("b", {DType::float32, Shape{2}});
  ValueMap<int> map;
  EXPECT_FALSE(map.contains(a));
  EXPECT_EQ(map.find(nullptr), nullptr);
  map[b] = 3;
  EXPECT_EQ(map.find(a), nullptr);
  ASSERT_TRUE(map.contains(b));
  EXPECT_EQ(*map.find(b), 3);
  EXPECT_EQ(map[a], 0);
  EXPECT_TRUE(map.contains(a));
}

TEST(ValueMap, keeps_references_while_it_grows) {
  Graph graph;
  ValueMap<int> map;
  int& first = map[graph.add_input("x", {DType::float32, Shape{2}})];
  for (int i = 0; i < 1000; ++i) map[graph.add_input("x", {DType::float32, Shape{2}})] = 1;
  first = 5;
  EXPECT_EQ(*map.find(graph.inputs.front()), 5);
}

TEST(ValueSet, has_what_was_inserted) {
  Graph graph;
  const Value* a = graph.add_input("a", {DType::float32, Shape{2}});
  const Value* b = graph.add_input("b", {DType::float32, Shape{2}});
  ValueSet set;
  set.insert(nullptr);
  set.insert(b);
  EXPECT_FALSE(set.contains(nullptr));
  EXPECT_FALSE(set.contains(a));
  EXPECT_TRUE(set.contains(b));
}

}  // namespace
}  // namespace tessera
