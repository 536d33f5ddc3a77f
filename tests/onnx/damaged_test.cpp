// Files that are broken or hostile: a clear user error each, and never a crash.
#include <chrono>
#include <random>

#include "rich_model.h"

namespace tessera {
namespace {

using namespace test;
using testing::HasSubstr;

TEST(Damaged, missing_and_empty_files) {
  TemporaryFolder folder;
  EXPECT_THROW(import_model(folder / "none.onnx"), Error);
  EXPECT_THROW(import_model(folder.path()), Error);
  put(folder / "empty.onnx", "");
  EXPECT_THROW(import_model(folder / "empty.onnx"), Error);
  EXPECT_THAT(import_error(std::string()), HasSubstr("is not an ONNX model"));
  EXPECT_THAT(import_error("<html>not found</html>"), HasSubstr("is not a"));
}

TEST(Damaged, every_truncation_is_an_error) {
  std::string bytes = small_model().SerializeAsString();
  // The small model's graph ends where its last field ends; before, no prefix is a model.
  for (size_t length = 0; length < bytes.size(); ++length) {
    SCOPED_TRACE(length);
    import_error(bytes.substr(0, length));
  }
}

TEST(Damaged, random_bytes_change_nothing_worse_than_the_model) {
  auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  onnx::ModelProto model = rich_model();
  add_floats(*model.mutable_graph(), "large", std::vector<float>(2000, 1));
  const std::string bytes = model.SerializeAsString();
  int errors = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = bytes;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    try {
      export_model_bytes(import_model_bytes(damaged));
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::user) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(errors, 0);
}

TEST(Damaged, initializer_of_the_wrong_size) {
  onnx::ModelProto model = small_model();
  model.mutable_graph()->mutable_initializer(0)->set_dims(0, 3);
  EXPECT_THAT(import_error(model), HasSubstr("tensor 'w': 8 bytes are stored where its extents and type float32 need "
                                             "12"));
}

TEST(Damaged, node_without_results) {
  onnx::ModelProto model = small_model();
  onnx::NodeProto& node = *model.mutable_graph()->add_node();
  node.set_op_type("Max");
  node.add_input(model.graph().node(0).input(0));
  EXPECT_THAT(import_error(model), HasSubstr("has no result"));
  node.add_output("");
  EXPECT_THAT(import_error(model), HasSubstr("has no result"));
}

TEST(Damaged, extents_that_overflow) {
  onnx::ModelProto model = small_model();
  auto& tensor = *model.mutable_graph()->mutable_initializer(0);
  for (int i = 0; i < 3; ++i) tensor.add_dims(int64_t{1} << 31);
  EXPECT_THAT(import_error(model), HasSubstr("impossibly large"));
  // 2^59 elements of 16 bytes: 2^63 bytes, and 2^66 bits wrap to none.
  tensor.clear_dims();
  tensor.add_dims(int64_t{1} << 59);
  tensor.set_data_type(onnx::TensorProto::COMPLEX128);
  tensor.set_raw_data("");
  EXPECT_THAT(import_error(model), HasSubstr("impossibly large"));
  tensor.set_dims(0, -2);
  EXPECT_THAT(import_error(model), HasSubstr("negative"));
}

TEST(Damaged, unknown_element_type) {
  onnx::ModelProto model = small_model();
  model.mutable_graph()->mutable_initializer(0)->set_data_type(77);
  EXPECT_THAT(import_error(model), HasSubstr("element type 77"));
}

TEST(Damaged, data_stored_twice) {
  onnx::ModelProto model = small_model();
  model.mutable_graph()->mutable_initializer(0)->add_float_data(1);
  EXPECT_THAT(import_error(model), HasSubstr("in two ways at once"));
}

TEST(Damaged, names_given_twice) {
  onnx::ModelProto model = small_model();
  model.mutable_graph()->mutable_node(1)->set_output(0, "sum");
  EXPECT_THAT(import_error(model), HasSubstr("the name 'sum' is given twice"));
  model = small_model();
  add_floats(*model.mutable_graph(), "w", {1});
  EXPECT_THAT(import_error(model), HasSubstr("the name 'w' is given twice"));
}

TEST(Damaged, undefined_names) {
  onnx::ModelProto model = small_model();
  model.mutable_graph()->mutable_node(0)->set_input(1, "missing");
  EXPECT_THAT(import_error(model), HasSubstr("Add producing 'sum' reads 'missing'"));
  model = small_model();
  model.mutable_graph()->mutable_output(0)->set_name("missing");
  EXPECT_THAT(import_error(model), HasSubstr("the output 'missing' is not defined"));
}

TEST(Damaged, cycles) {
  onnx::ModelProto model = small_model();
  model.mutable_graph()->mutable_node(0)->set_input(0, "y");
  EXPECT_THAT(import_error(model), HasSubstr("cycle"));
}

TEST(Damaged, declared_type_unlike_the_initializer) {
  onnx::ModelProto model = small_model();
  set_type(*model.mutable_graph()->add_input(), "w", onnx::TensorProto::FLOAT, {"3"});
  EXPECT_THAT(import_error(model), HasSubstr("'w' is declared float32[3] but its initializer is float32[2]"));
}

TEST(Damaged, sparse_index_outside) {
  onnx::ModelProto model = rich_model();
  model.mutable_graph()->mutable_sparse_initializer(0)->mutable_indices()->set_int64_data(0, 3);
  EXPECT_THAT(import_error(model), HasSubstr("entry 0 is outside"));
}

TEST(Unsupported, versions) {
  onnx::ModelProto model = small_model();
  model.set_ir_version(15);
  EXPECT_THAT(import_error(model),
              AllOf(HasSubstr("IR version 15; supported are 3 to 14"), HasSubstr("set its ir_version to 14")));
  model = small_model();
  model.mutable_opset_import(0)->set_version(0);
  EXPECT_THAT(import_error(model), HasSubstr("supported are 1 to 28"));
  model.mutable_opset_import(0)->set_version(29);
  EXPECT_THAT(import_error(model), HasSubstr("supported are 1 to 28"));
  model.clear_opset_import();
  EXPECT_THAT(import_error(model), HasSubstr("imports no version of ONNX's operator set"));
}

TEST(Unsupported, one_domain_in_two_versions) {
  onnx::ModelProto model = small_model();
  *model.add_opset_import() = model.opset_import(0);
  EXPECT_TRUE(equal(round_trip(model), model));
  model.mutable_opset_import(1)->set_version(21);
  EXPECT_THAT(import_error(model), HasSubstr("versions 20 and 21"));
}

// Generous by two orders of magnitude: this is about quadratic work, not about speed.
TEST(Hostile, a_long_chain_in_reverse_order_takes_little_time) {
  onnx::ModelProto model = small_model();
  auto& graph = *model.mutable_graph();
  graph.clear_node();
  constexpr int kNodes = 50000;
  std::vector<std::string> all;
  for (int i = kNodes; i > 0; --i) {
    all.push_back("v" + std::to_string(i));
    add_node(graph, "Relu", {i == 1 ? "x" : "v" + std::to_string(i - 1)}, {all.back()});
  }
  add_node(graph, "Sum", all, {"y"});
  graph.mutable_node()->SwapElements(0, kNodes);
  auto start = std::chrono::steady_clock::now();
  OnnxModel imported = import_model_bytes(model.SerializeAsString());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(imported.graph->nodes().back()->op_type, "Sum");
}

TEST(Hostile, nesting_deeper_than_any_model) {
  onnx::ModelProto model = small_model();
  onnx::GraphProto* graph = model.mutable_graph();
  for (int depth = 0; depth < 2000; ++depth) {
    auto& attribute = *add_node(*graph, "If", {"x"}, {"deep"}).add_attribute();
    attribute.set_name("then_branch");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    graph = attribute.mutable_g();
  }
  EXPECT_THAT(import_error(model), HasSubstr("nested more than"));
}

}  // namespace
}  // namespace tessera
