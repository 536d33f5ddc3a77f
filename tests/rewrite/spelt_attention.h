#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <utility>
#include <vector>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {

/// Attention as exporters spell it, over queries, keys and values [b, 6, s, 16].
class SpeltAttention : public testing::Test {
 protected:
  Value* turned(Value* x) { return node(graph, "Transpose", {x}, "", {{"perm", std::vector<int64_t>{0, 1, 3, 2}}}); }
  Value* attend(Value* logits, Value* value) {
    return node(graph, "MatMul", {node(graph, "Softmax", {logits}, "", {{"axis", int64_t{-1}}}), value}, "y");
  }
  Value* scores() { return node(graph, "MatMul", {q, turned(k)}); }
  Value* scaled_scores() { return node(graph, "Mul", {scores(), number(graph, 0.25)}); }
  Value* positions(std::vector<int64_t> axes) {
    Value* range = node(graph, "Range",
                        {integer(graph, 0), graph.add_expression("", {Expr::symbol("s")}, true), integer(graph, 1)});
    return node(graph, "Unsqueeze", {range, ints(graph, std::move(axes))});
  }
  Value* causal(std::string_view comparison, bool exchanged) {
    Value* query = positions({0, 1, 3});
    Value* key = positions({0, 1, 2});
    return node(graph, comparison, exchanged ? std::vector{query, key} : std::vector{key, query});
  }

  const Node* raised(Value* output) {
    graph.outputs = {output};
    fold(model);
    canonicalize(model);
    raise_attention(model);
    graph.verify("test");
    EXPECT_EQ(graph.outputs[0]->name, "y");
    return graph.outputs[0]->producer;
  }

  OnnxModel model;
  Graph& graph = *model.graph;
  Value* q = input(graph, "q", {"b", "6", "s", "16"});
  Value* k = input(graph, "k", {"b", "6", "s", "16"});
  Value* v = input(graph, "v", {"b", "6", "s", "16"});
};

}  // namespace tessera::rewrite
