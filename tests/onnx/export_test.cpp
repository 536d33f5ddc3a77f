// Changes are written, everything else stays as it was, and files appear whole or not at all.
#include <sys/resource.h>

#include <csignal>

#include "rich_model.h"
#include "tessera/onnx/metadata.h"

namespace tessera {
namespace {

using namespace test;
using testing::HasSubstr;

OnnxModel imported(const onnx::ModelProto& proto) {
  return import_model_bytes(proto.SerializeAsString());
}
onnx::ModelProto exported(const OnnxModel& model) {
  return parsed(export_model_bytes(model));
}

TEST(Export, a_model_built_from_nothing) {
  OnnxModel model;
  model.opset_imports = {{"", 20}};
  Graph& graph = *model.graph;
  graph.name = "built";
  Value* x = graph.add_input("x", {DType::float32, Shape{Expr::symbol("n"), 2}});
  Value* w = graph.add_state("w", Tensor::of<float>(DType::float32, {2}, {1, 2}));
  Value* shape = graph.add_expression("shape", {Expr(1), Expr(-1)});
  Node* add = graph.add_node("Add", {x, w}, {"sum"});
  Node* reshape = graph.add_node("Reshape", {add->output(), shape}, {"y"});
  reshape->set("allowzero", int64_t{0});
  reshape->output()->type = {DType::float32, Shape{1, Expr::symbol("n") * 2}};
  graph.outputs = {reshape->output()};

  onnx::ModelProto written = exported(model);
  EXPECT_EQ(written.graph().initializer_size(), 2);
  EXPECT_EQ(written.graph().input_size(), 1);
  EXPECT_EQ(written.graph().output(0).type().tensor_type().shape().dim(1).dim_param(), "2*n");
  OnnxModel again = imported(written);
  again.graph->verify("import");
  EXPECT_EQ(again.graph->find("shape")->data.to_int64(), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(again.graph->find("w")->kind, ValueKind::state);
  EXPECT_EQ(to_string(again.graph->find("y")->shape()), to_string(reshape->output()->shape()));
}

TEST(Export, symbolic_expressions_must_have_become_nodes) {
  OnnxModel model;
  Value* shape = model.graph->add_expression("shape", {Expr::symbol("n")});
  model.graph->outputs = {model.graph->add_node("ConstantOfShape", {shape}, {"y"})->output()};
  try {
    export_model_bytes(model);
    ADD_FAILURE() << "the export succeeds";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::running);
    EXPECT_THAT(error.what(), HasSubstr("'shape' = n"));
  }
}

TEST(Export, a_changed_dimension_is_rewritten_and_its_denotation_kept) {
  onnx::ModelProto proto = rich_model();
  OnnxModel model = imported(proto);
  model.graph->find("x")->type.shape = Shape{4, 2};
  model.graph->find("y")->type.shape = Shape{4, 2};
  proto.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_value(4);
  for (auto* info : {proto.mutable_graph()->mutable_output(0), proto.mutable_graph()->mutable_value_info(2)})
    info->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(4);
  EXPECT_TRUE(equal(exported(model), proto));
}

TEST(Export, new_attribute_values_replace_old_ones) {
  OnnxModel model = imported(rich_model());
  Node& node = *model.graph->find("everything")->producer;
  node.set("zero left out", int64_t{3});
  node.set("t", int64_t{4});
  node.set("documented", int64_t{8});
  onnx::ModelProto written = exported(model);
  for (const auto& attribute : written.graph().node(2).attribute()) {
    if (attribute.name() == "zero left out") {
      EXPECT_EQ(attribute.i(), 3);
    }
    if (attribute.name() == "t") {
      EXPECT_EQ(attribute.type(), onnx::AttributeProto::INT);
      EXPECT_FALSE(attribute.has_t());
    }
    if (attribute.name() == "documented") {
      EXPECT_EQ(attribute.i(), 8);
      EXPECT_EQ(attribute.doc_string(), "seven");
    }
  }
}

TEST(Export, operator_sets_follow_the_model) {
  OnnxModel model = imported(rich_model());
  model.opset_imports.erase("custom");
  model.opset_imports[""] = 21;
  model.opset_imports["tessera.comm"] = 1;
  onnx::ModelProto written = exported(model);
  ASSERT_EQ(written.opset_import_size(), 3);
  EXPECT_EQ(written.opset_import(0).version(), 21);
  EXPECT_EQ(written.opset_import(1).domain(), "ai.onnx");
  EXPECT_EQ(written.opset_import(2).domain(), "tessera.comm");
}

TEST(Export, constants_in_a_function_become_nodes) {
  OnnxModel model = imported(rich_model());
  Graph& body = *model.functions[0].body;
  body.set_input(body.nodes()[0].get(), 0, body.add_constant("half", Tensor::of<float>(DType::float32, {}, {0.5F})));
  onnx::ModelProto written = exported(model);
  EXPECT_EQ(written.functions(0).node(0).op_type(), "Constant");
  EXPECT_EQ(written.functions(0).node(0).output(0), "half");
  EXPECT_EQ(written.functions(0).node(1).input(0), "half");
}

TEST(Export, value_info_of_all_values_on_request) {
  TemporaryFolder folder;
  OnnxModel model = imported(small_model());
  model.graph->find("sum")->type = model.graph->find("x")->type;
  EXPECT_EQ(exported(model).graph().value_info_size(), 0);
  ExportOptions options;
  options.value_info = true;
  export_model(model, folder / "m.onnx", options);
  onnx::ModelProto written = parsed(contents(folder / "m.onnx"));
  ASSERT_EQ(written.graph().value_info_size(), 1);
  EXPECT_EQ(written.graph().value_info(0).name(), "sum");
}

TEST(Metadata, travels_with_values_nodes_graph_and_model) {
  OnnxModel model = imported(small_model());
  Value* sum = model.graph->find("sum");
  EXPECT_EQ(get_metadata(*sum, "sharding"), std::nullopt);
  set_metadata(*sum, "sharding", "b{dp} 2");
  set_metadata(*model.graph->find("w"), "sharding", "2{tp}");
  set_metadata(*model.graph->find("x"), "sharding", "b{dp} 2");
  set_metadata(*sum->producer, "stage", "0");
  set_metadata(*model.graph, "graph", "yes");
  set_metadata(model, "mesh", "dp=2");
  set_metadata(model, "mesh", "dp=4");
  OnnxModel again = imported(exported(model));
  EXPECT_EQ(get_metadata(*again.graph->find("sum"), "sharding"), "b{dp} 2");
  EXPECT_EQ(get_metadata(*again.graph->find("w"), "sharding"), "2{tp}");
  EXPECT_EQ(get_metadata(*again.graph->find("x"), "sharding"), "b{dp} 2");
  EXPECT_EQ(get_metadata(*again.graph->find("sum")->producer, "stage"), "0");
  EXPECT_EQ(get_metadata(*again.graph, "graph"), "yes");
  EXPECT_EQ(all_metadata(again), (std::map<std::string, std::string>{{"mesh", "dp=4"}}));
  remove_metadata(again, "mesh");
  EXPECT_EQ(get_metadata(again, "mesh"), std::nullopt);
}

/// Limits the size of files that this process may write, as a full disk would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

TEST(AtomicExport, a_full_disk_leaves_the_old_files_and_no_litter) {
  TemporaryFolder folder;
  put(folder / "m.onnx", "old model");
  put(folder / "m.onnx.data", "old data");
  onnx::ModelProto proto = small_model();
  add_floats(*proto.mutable_graph(), "large", std::vector<float>(100000, 1));
  OnnxModel model = imported(proto);
  ExportOptions to_file;
  to_file.external_threshold = 1024;
  ExportOptions to_folder = to_file;
  to_folder.external_file = "new/folder/data";
  {
    FileSizeLimit limit(50000);
    EXPECT_THROW(export_model(model, folder / "m.onnx"), Error);
    EXPECT_THROW(export_model(model, folder / "m.onnx", to_file), Error);
    EXPECT_THROW(export_model(model, folder / "m.onnx", to_folder), Error);
  }
  EXPECT_EQ(contents(folder / "m.onnx"), "old model");
  EXPECT_EQ(contents(folder / "m.onnx.data"), "old data");
  EXPECT_EQ(folder.entries(), 2U);
}

TEST(AtomicExport, a_folder_that_is_not_there_is_a_user_error) {
  TemporaryFolder folder;
  try {
    export_model(imported(small_model()), folder.path() / "none" / "m.onnx");
    ADD_FAILURE() << "the export succeeds";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
  }
  EXPECT_EQ(folder.entries(), 0U);
}

}  // namespace
}  // namespace tessera
