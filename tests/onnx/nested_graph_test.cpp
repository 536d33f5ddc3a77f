// Graphs inside nodes: what they use from outside is an operand of the node that holds them.
#include "rich_model.h"

namespace tessera {
namespace {

using namespace test;

const Graph& nested(const Node& node, std::string_view attribute) {
  return **node.get<Region>(attribute);
}

TEST(NestedGraph, captures_are_the_last_operands) {
  OnnxModel model = import_model_bytes(rich_model().SerializeAsString());
  const Node& branching = *model.graph->find("chosen")->producer;
  EXPECT_EQ(branching.operand_count(), 1U);
  EXPECT_EQ(branching.captures, (std::vector<std::string>{"sum", "condition", "w"}));
  EXPECT_EQ(branching.input(1), model.graph->find("sum"));
  EXPECT_EQ(branching.input(3), model.graph->find("w"));

  const Graph& then_graph = nested(branching, "then_branch");
  then_graph.verify("import");
  EXPECT_TRUE(then_graph.inputs.empty());
  EXPECT_EQ(then_graph.find("w")->kind, ValueKind::input);
  EXPECT_EQ(then_graph.find("inner_weight")->kind, ValueKind::state);
  EXPECT_EQ(to_string(then_graph.find("sum")->shape()), "[batch, 2]");

  const Node& loop = *then_graph.find("looped")->producer;
  EXPECT_EQ(loop.operand_count(), 3U);
  EXPECT_EQ(loop.captures, std::vector<std::string>{"w"});
  EXPECT_EQ(nested(loop, "body").inputs.size(), 3U);
}

TEST(NestedGraph, an_output_may_be_an_outer_value) {
  OnnxModel model = import_model_bytes(rich_model().SerializeAsString());
  const Graph& else_graph = nested(*model.graph->find("chosen")->producer, "else_branch");
  ASSERT_EQ(else_graph.outputs.size(), 1U);
  EXPECT_EQ(else_graph.outputs[0]->kind, ValueKind::input);
}

TEST(NestedGraph, what_only_a_nested_graph_uses_is_not_dead) {
  onnx::ModelProto proto = rich_model();
  proto.mutable_graph()->mutable_output(0)->set_name("chosen");
  proto.mutable_graph()->mutable_output(1)->set_name("chosen");
  proto.mutable_graph()->mutable_output(1)->clear_type();
  OnnxModel model = import_model_bytes(proto.SerializeAsString());
  model.graph->erase_dead();
  EXPECT_NE(model.graph->find("sum"), nullptr);
  EXPECT_EQ(model.graph->find("sequence"), nullptr);
}

TEST(NestedGraph, renamed_outer_values_are_renamed_inside_when_written) {
  OnnxModel model = import_model_bytes(rich_model().SerializeAsString());
  model.graph->rename(model.graph->find("w"), "weight");
  onnx::ModelProto written = parsed(export_model_bytes(model));
  const onnx::NodeProto* branching = nullptr;
  for (const auto& node : written.graph().node())
    if (node.op_type() == "If") branching = &node;
  ASSERT_NE(branching, nullptr);
  EXPECT_EQ(branching->input_size(), 1);
  const auto& loop = branching->attribute(0).g().node(1);
  ASSERT_EQ(loop.op_type(), "Loop");
  EXPECT_EQ(loop.attribute(0).g().node(1).input(1), "weight");
  import_model_bytes(written.SerializeAsString()).graph->verify("import");
}

TEST(NestedGraph, a_producer_that_only_a_nested_graph_uses_comes_first) {
  onnx::ModelProto proto = small_model();
  auto& graph = *proto.mutable_graph();
  add_node(graph, "If", {"flag"}, {"chosen"});
  auto& branching = *graph.mutable_node(2);
  for (const char* name : {"then_branch", "else_branch"}) {
    auto& attribute = *branching.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::GRAPH);
    add_node(*attribute.mutable_g(), "Neg", {"late"}, {"negated"});
    attribute.mutable_g()->add_output()->set_name("negated");
  }
  add_node(graph, "Abs", {"x"}, {"late"});
  set_type(*graph.add_input(), "flag", onnx::TensorProto::BOOL, {});
  OnnxModel model = import_model_bytes(proto.SerializeAsString());
  model.graph->verify("import");
  EXPECT_EQ(model.graph->nodes().back()->op_type, "If");
}

TEST(NestedGraph, undefined_names_inside_are_errors) {
  onnx::ModelProto proto = rich_model();
  for (auto& node : *proto.mutable_graph()->mutable_node())
    if (node.op_type() == "If") node.mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(0, "nowhere");
  EXPECT_THAT(import_error(proto), testing::HasSubstr("reads 'nowhere'"));
}

}  // namespace
}  // namespace tessera
