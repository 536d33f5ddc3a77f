#include "tessera/rewrite/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/ir/random.h"
#include "tessera/ops/random.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

using testing::HasSubstr;
using Histogram = std::map<std::string, int>;

Value* dropout(Graph& graph, Value* x, Value* training, std::string_view name) {
  return node(graph, "Dropout", {x, number(graph, 0.25), training}, name);
}

// Two of one operand are two, and one that is said not to drop goes.
TEST(Random, dropouts_that_train_stay_apart) {
  OnnxModel model;
  model.opset_imports[""] = kCanonicalOpset;
  Graph& graph = *model.graph;
  Value *x = input(graph, "x", {"4", "6"}), *on = graph.constant_scalar(DType::boolean, 1),
        *off = graph.constant_scalar(DType::boolean, 0);
  graph.outputs = {dropout(graph, x, on, "a"), dropout(graph, x, on, "b"),
                   node(graph, "Relu", {dropout(graph, x, off, "c")}, "d")};
  EXPECT_EQ(count_dropouts(model, true), 2);
  EXPECT_EQ(count_dropouts(model, false), 1);
  rewrite_model(model, {});
  EXPECT_EQ(histogram(graph), (Histogram{{"Dropout", 2}, {"Relu", 1}}));
  const Node &a = *graph.find("a")->producer, &b = *graph.find("b")->producer;
  EXPECT_EQ(a.domain, ops::kRandomDomain);
  EXPECT_EQ(a.get_int(random::kKey, 0), random::key_of_name("a"));
  EXPECT_EQ(b.get_int(random::kKey, 0), random::key_of_name("b"));
  seed_random(graph, 5);
  EXPECT_EQ(a.get_int(random::kKey, 0), random::seeded(5, random::key_of_name("a")));
}

TEST(Random, an_input_may_say_whether_a_dropout_trains) {
  OnnxModel model;
  model.opset_imports[""] = kCanonicalOpset;
  Graph& graph = *model.graph;
  Value* flag = graph.add_input("flag", {DType::boolean, Shape{}});
  graph.outputs = {dropout(graph, input(graph, "x", {"4"}), flag, "a")};
  rewrite_model(model, {});
  EXPECT_EQ(graph.find("a")->producer->input(2), flag);
}

TEST(Random, a_seed_of_the_model_counts_in_place_of_the_name) {
  OnnxModel model;
  model.opset_imports[""] = kCanonicalOpset;
  Graph& graph = *model.graph;
  const Attribute shape{"shape", std::vector<int64_t>{3, 2}}, seed{"seed", 2.0f};
  graph.outputs = {node(graph, "RandomNormal", {}, "a", {shape, seed}),
                   node(graph, "RandomUniform", {}, "b", {shape, seed, {"high", 4.0f}})};
  rewrite_model(model, {});
  for (const auto& made : graph.nodes()) {
    if (made->domain != ops::kRandomDomain) continue;
    EXPECT_EQ(made->get_int(random::kKey, 0), random::key_of_seed(2));
    EXPECT_EQ(to_string(made->output()->shape()), "[3, 2]");
  }
}

TEST(Random, all_dropouts_can_be_switched) {
  OnnxModel model;
  model.opset_imports[""] = kCanonicalOpset;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"4"});
  graph.outputs = {node(graph, "Dropout", {x}, "a"), dropout(graph, x, graph.constant_scalar(DType::boolean, 1), "b")};
  switch_dropouts(model, true);
  EXPECT_EQ(count_dropouts(model, true), 2);
  switch_dropouts(model, false);
  EXPECT_EQ(count_dropouts(model, true), 0);
}

TEST(Random, samples_need_rows_of_classes) {
  OnnxModel model;
  model.opset_imports[""] = kCanonicalOpset;
  Graph& graph = *model.graph;
  graph.outputs = {node(graph, "Multinomial", {input(graph, "x", {"4"})}, "a")};
  EXPECT_THAT([&] { rewrite_model(model, {}); }, testing::ThrowsMessage<Error>(HasSubstr("[batch, classes]")));
}

}  // namespace
}  // namespace tessera::rewrite
