// Parts that the IR does not model survive import and export.
#include "rich_model.h"
#include "tessera/onnx/strings.h"

namespace tessera {
namespace {

using namespace test;

TEST(Lossless, every_message_of_the_format) {
  onnx::ModelProto model = rich_model();
  EXPECT_TRUE(equal(round_trip(model), model));
}

TEST(Lossless, unknown_fields_at_every_level) {
  onnx::ModelProto model = rich_model();
  add_unknown_fields(model);
  EXPECT_TRUE(equal(round_trip(model), model));
}

TEST(Lossless, a_clone_is_written_like_its_original) {
  onnx::ModelProto model = rich_model();
  add_unknown_fields(model);
  OnnxModel copy = import_model_bytes(model.SerializeAsString()).clone();
  EXPECT_TRUE(equal(parsed(export_model_bytes(copy)), model));
}

TEST(Lossless, two_trips_are_one) {
  std::string once = export_model_bytes(import_model_bytes(rich_model().SerializeAsString()));
  EXPECT_EQ(export_model_bytes(import_model_bytes(once)), once);
}

TEST(Import, the_graph_says_what_the_file_says) {
  OnnxModel model = import_model_bytes(rich_model().SerializeAsString());
  const Graph& graph = *model.graph;
  graph.verify("import");
  EXPECT_EQ(model.opset(), 20);
  EXPECT_EQ(model.opset_imports.at("custom"), 1);
  ASSERT_EQ(graph.inputs.size(), 2U);  // `listed` has an initializer
  EXPECT_EQ(graph.inputs[0]->name, "x");
  EXPECT_EQ(to_string(graph.inputs[0]->shape()), "[batch, 2]");
  EXPECT_EQ(graph.find("w")->kind, ValueKind::state);
  EXPECT_EQ(graph.find("listed")->kind, ValueKind::state);
  EXPECT_EQ(graph.find("condition")->kind, ValueKind::constant);
  EXPECT_EQ(graph.nodes()[0]->domain, "");
  EXPECT_EQ(strings_of(graph.find("strings")->data), (std::vector<std::string>{"first", ""}));
  EXPECT_THAT(graph.find("sparse")->data.as<float>(), testing::ElementsAre(0, 1.5F, 0, 0, 2.5F, 0));
  EXPECT_EQ(graph.find("sequence")->dtype(), DType::undefined);
}

TEST(Import, dimensions_without_a_usable_name_are_symbols_of_their_own) {
  OnnxModel model = import_model_bytes(rich_model().SerializeAsString());
  const Shape& shape = model.graph->find("after")->shape();
  EXPECT_EQ(shape[0], Expr::symbol("after_dim_0"));
  EXPECT_EQ(shape[1], Expr::symbol("after_dim_1"));
  EXPECT_EQ(shape[2], Expr::symbol("batch") + 1);
  EXPECT_EQ(shape[3], Expr::symbol("odd name!"));
}

TEST(Import, dimension_with_a_name_of_kilobytes_gets_a_short_one) {
  auto symbol = [](const std::string& name) {
    onnx::ModelProto proto = rich_model();
    for (auto& input : *proto.mutable_graph()->mutable_input())
      if (input.name() == "after")
        input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(name);
    return import_model_bytes(proto.SerializeAsString()).graph->find("after")->shape().at(0);
  };
  const std::string name(10'000, '+');
  EXPECT_LT(symbol(name).str().size(), 100u);
  EXPECT_TRUE(symbol(name).as_symbol().has_value());
  EXPECT_EQ(symbol(name), symbol(name));
  EXPECT_FALSE(symbol(name) == symbol(name + "+"));
}

TEST(Import, attributes_have_their_types) {
  OnnxModel model = import_model_bytes(rich_model().SerializeAsString());
  const Node& node = *model.graph->find("everything")->producer;
  EXPECT_EQ(node.get_float("f", 0), 0.25F);
  EXPECT_EQ(node.get_int("i", 0), -3);
  EXPECT_EQ(node.get_int("zero left out", 1), 0);
  EXPECT_EQ(node.get_ints("type left out"), std::vector<int64_t>{4});
  EXPECT_EQ(node.get_string("s", ""), std::string("a\0b", 3));
  EXPECT_EQ(node.get<Tensor>("t")->to_int64(), std::vector<int64_t>{5});
  EXPECT_NE(node.get<OpaqueAttribute>("sparse"), nullptr);
  EXPECT_EQ(node.inputs[1], nullptr);
  EXPECT_EQ(node.outputs[1], nullptr);
}

TEST(Import, functions_have_bodies) {
  OnnxModel model = import_model_bytes(rich_model().SerializeAsString());
  ASSERT_EQ(model.functions.size(), 1U);
  const Function& function = model.functions[0];
  function.body->verify("import");
  EXPECT_EQ(function.body->inputs.size(), 3U);
  EXPECT_EQ(function.attributes, std::vector<std::string>{"axis"});
  EXPECT_EQ(std::get<float>(function.defaults.at(0).value), 0.5F);
  EXPECT_EQ(function.body->nodes()[0]->get<AttributeReference>("axis")->name, "axis");
}

TEST(Import, nodes_out_of_order_are_sorted) {
  onnx::ModelProto model = small_model();
  model.mutable_graph()->mutable_node()->SwapElements(0, 1);
  OnnxModel sorted = import_model_bytes(model.SerializeAsString());
  EXPECT_EQ(sorted.graph->nodes()[0]->op_type, "Add");
  sorted.graph->verify("import");
}

}  // namespace
}  // namespace tessera
