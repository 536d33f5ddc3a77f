#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ops/gradients/gradient.h"
#include "tessera/ops/op.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

// The gradients of a cache of two rows and of an update of `count`, which goes around the end.
std::vector<Value*> gradients_around(Graph& graph, int64_t count) {
  Value* cache = graph.add_input("cache", {DType::float32, Shape{1, 2, 1}});
  Value* update = graph.add_input("update", {DType::float32, Shape{1, count, 1}});
  Value* first = graph.add_input("first", {DType::int64, Shape{1}});
  Node* node = graph.add_node("TensorScatter", {cache, update, first}, {"y"});
  node->set("mode", std::string("circular"));
  infer_results(op_of(*node), *node);
  GradientBuilder builder(graph, *node, {graph.add_input("g", {DType::float32, Shape{1, 2, 1}})}, {true, true, false});
  op_of(*node).gradient(builder);
  return builder.given();
}

TEST(TensorScatterShard, says_where_it_is) {
  Graph graph;
  Value* cache = graph.add_input("cache", {DType::float32, Shape{1, 2, 1}});
  Value* update = graph.add_input("update", {DType::float32, Shape{1, 1, 1}});
  Node* node = graph.add_node("TensorScatterShard", {cache, update}, {"y"}, "tessera");
  EXPECT_THROW(infer_results(op_of(*node), *node), Error);
}

TEST(TensorScatter, has_gradients_if_the_update_fits_around) {
  Graph graph;
  const std::vector<Value*> given = gradients_around(graph, 2);
  EXPECT_NE(given[0], nullptr);
  EXPECT_NE(given[1], nullptr);
}

// Rows that later ones overwrite would get the gradients of those.
TEST(TensorScatter, has_no_gradient_if_the_update_overwrites_itself) {
  Graph graph;
  try {
    gradients_around(graph, 3);
    ADD_FAILURE() << "given";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("its update of 3 goes around a cache of 2 and over its own rows"));
  }
}

}  // namespace
}  // namespace tessera::ops
