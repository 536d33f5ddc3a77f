#include <gtest/gtest.h>

#include "api/small_model.h"
#include "tessera/compare.h"
#include "tessera/inspect.h"

// Exporters that keep weights in Constant nodes, not in initializers.
namespace tessera {
namespace {

using test::TemporaryFolder;

// The pair of matrix products, its weights as initializers or as Constant nodes.
Model pair_of(const TemporaryFolder& folder, bool constants) {
  OnnxModel model = parse_text(test::kPair);
  Graph& graph = *model.graph;
  for (Value* state : graph.values_of(ValueKind::state)) {
    const std::string name = state->name;
    state->data = test::ramp(state->data.dims);
    if (!constants) continue;
    graph.rename(state, name + ".state");
    Node* node = graph.add_node("Constant", {}, {name}, "", graph.nodes().front().get());
    node->set("value", state->data);
    graph.replace_uses(state, node->output());
  }
  graph.erase_dead(true);
  const auto path = folder / (constants ? "constants.onnx" : "initializers.onnx");
  export_model(model, path);
  return Model::load(path);
}

TEST(ConstantNodes, that_hold_weights_are_parameters) {
  TemporaryFolder folder;
  const Model constants = pair_of(folder, true), initializers = pair_of(folder, false);
  EXPECT_EQ(inspect(constants).parameters, 512);
  EXPECT_EQ(inspect(constants).parameter_bytes, inspect(initializers).parameter_bytes);
  const Tensors inputs = {{"x", test::ramp({3, 8})}};
  const Tensors expected = Session(compile(initializers, Mesh())).run(inputs);
  const Program split = compile(constants, Mesh::parse("tp=2"));
  ASSERT_EQ(split.summary().collectives.size(), 1U) << "megatron finds the pair";
  EXPECT_EQ(split.summary().collectives[0].kind, "all_reduce");
  for (const Difference& difference : compare(expected, Session(split).run(inputs)))
    EXPECT_TRUE(difference.pass) << difference.max_rel;
  Plan plan;
  plan.annotations = {{"up=[-, tp]"}, {"down=[tp, -]"}};
  EXPECT_EQ(compile(constants, Mesh::parse("tp=2"), plan).summary().collectives.size(), 1U) << "annotated by name";
}

}  // namespace
}  // namespace tessera
