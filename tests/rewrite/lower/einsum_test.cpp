#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;

Value* einsum(Graph& graph, std::string equation, std::vector<Value*> operands) {
  return node(graph, "Einsum", std::move(operands), "y", {{"equation", std::move(equation)}});
}

void lower(OnnxModel& model, Value* output) {
  model.graph->outputs = {output};
  fold(model);
  lower_einsum(model);
  canonicalize(model);
  model.graph->verify("test");
}

TEST(LowerEinsum, linear_layer_is_one_product) {
  OnnxModel model;
  Graph& graph = *model.graph;
  lower(model, einsum(graph, "bsd,df->bsf", {input(graph, "x", {"b", "s", "4"}), state(graph, "w", {4, 6})}));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("MatMul"));
  EXPECT_EQ(graph.outputs[0]->name, "y");
}

TEST(LowerEinsum, attention_scores_turn_the_keys) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* q = input(graph, "q", {"b", "h", "s", "8"});
  Value* k = input(graph, "k", {"b", "h", "t", "8"});
  lower(model, einsum(graph, "bhsd,bhtd->bhst", {q, k}));
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"MatMul", 1}, {"Transpose", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->inputs[0], q);
}

TEST(LowerEinsum, weights_of_experts_stay_as_they_are_stored) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* w = state(graph, "w", {8, 4, 6});
  lower(model, einsum(graph, "bsd,edf->bsef", {input(graph, "x", {"b", "s", "4"}), w}));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Transpose", "Reshape", "MatMul", "Reshape"));
  EXPECT_EQ(w->uses[0].node->op_type, "MatMul");
}

TEST(LowerEinsum, a_weight_on_the_left_goes_to_the_right) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* w = state(graph, "w", {4, 6});
  lower(model, einsum(graph, "df,bsd->bsf", {w, input(graph, "x", {"b", "s", "4"})}));
  EXPECT_EQ(w->uses[0].index, 1u);
}

TEST(LowerEinsum, a_diagonal_stays) {
  OnnxModel model;
  Graph& graph = *model.graph;
  lower(model, einsum(graph, "bii->bi", {input(graph, "x", {"b", "4", "4"})}));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Einsum"));
}

}  // namespace
}  // namespace tessera::rewrite
