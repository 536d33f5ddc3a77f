#include "rich_model.h"

namespace tessera::test {
namespace {

template <typename Message>
void add_metadata(Message& message, const std::string& key, const std::string& value) {
  auto* pair = message.add_metadata_props();
  pair->set_key(key);
  pair->set_value(value);
}

onnx::AttributeProto& add_attribute(onnx::NodeProto& node, const std::string& name,
                                    onnx::AttributeProto::AttributeType type) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

void add_attributes(onnx::GraphProto& graph) {
  using Proto = onnx::AttributeProto;
  auto& node = add_node(graph, "Everything", {"x", "", "w"}, {"everything", ""});
  node.set_domain("custom");
  node.set_overload("float");
  node.set_name("all attributes");
  node.set_doc_string("a node");
  add_metadata(node, "key", "value");
  add_attribute(node, "f", Proto::FLOAT).set_f(0.25F);
  add_attribute(node, "nan", Proto::FLOAT).set_f(std::numeric_limits<float>::quiet_NaN());
  add_attribute(node, "i", Proto::INT).set_i(-3);
  add_attribute(node, "s", Proto::STRING).set_s(std::string("a\0b", 3));
  add_attribute(node, "documented", Proto::INT).set_i(7);
  node.mutable_attribute()->rbegin()->set_doc_string("seven");
  for (float f : {1.0F, -0.0F}) add_attribute(node, f > 0 ? "one" : "minus zero", Proto::FLOATS).add_floats(f);
  add_attribute(node, "no ints", Proto::INTS);
  add_attribute(node, "strings", Proto::STRINGS).add_strings("");
  // Writers of proto3 leave zeros out; old ones leave the type out.
  add_attribute(node, "zero left out", Proto::INT);
  add_attribute(node, "empty left out", Proto::STRING);
  auto& typeless = *node.add_attribute();
  typeless.set_name("type left out");
  typeless.add_ints(4);
  auto& nothing = *node.add_attribute();
  nothing.set_name("nothing but a name");
  // A value beside the one that counts.
  auto& stray = add_attribute(node, "stray", Proto::INT);
  stray.set_i(1);
  stray.set_f(2);
  auto& tensor = *add_attribute(node, "t", Proto::TENSOR).mutable_t();
  tensor.set_name("named");
  tensor.set_doc_string("inside an attribute");
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_int64_data(5);
  add_attribute(node, "no tensor", Proto::TENSOR);
  auto& sparse = *add_attribute(node, "sparse", Proto::SPARSE_TENSOR).mutable_sparse_tensor();
  *sparse.mutable_values() = tensor;
  sparse.add_dims(3);
  add_attribute(node, "type", Proto::TYPE_PROTO).mutable_tp()->mutable_map_type()->set_key_type(7);
  *add_attribute(node, "tensors", Proto::TENSORS).add_tensors() = tensor;
  add_attribute(node, "graphs", Proto::GRAPHS).add_graphs()->set_name("listed");
  add_attribute(node, "types", Proto::TYPE_PROTOS).add_type_protos()->set_denotation("d");
  *add_attribute(node, "sparses", Proto::SPARSE_TENSORS).add_sparse_tensors() = sparse;

  auto& device = *node.add_device_configurations();
  device.set_configuration_id("two");
  device.set_pipeline_stage(0);
  auto& sharding = *device.add_sharding_spec();
  sharding.set_tensor_name("x");
  sharding.add_device(-1);
  auto& group = *sharding.add_index_to_device_group_map();
  group.set_key(-1);
  group.add_value(0);
  group.add_value(1);
  auto& dim = *sharding.add_sharded_dim();
  dim.set_axis(0);
  dim.add_simple_sharding()->set_dim_param("batch");
  dim.add_simple_sharding()->set_num_shards(2);
}

/// If whose branch holds a Loop; both use values from outside, `w` from two levels up.
void add_control_flow(onnx::GraphProto& graph) {
  auto& branching = add_node(graph, "If", {"condition"}, {"chosen"});
  auto& then_graph = *add_attribute(branching, "then_branch", onnx::AttributeProto::GRAPH).mutable_g();
  then_graph.set_name("then");
  then_graph.set_doc_string("a nested graph");
  add_floats(then_graph, "inner_weight", {3, 4});
  add_node(then_graph, "Add", {"sum", "inner_weight"}, {"inner"});
  auto& loop = add_node(then_graph, "Loop", {"", "condition", "inner"}, {"looped"});
  auto& body = *add_attribute(loop, "body", onnx::AttributeProto::GRAPH).mutable_g();
  body.set_name("body");
  set_type(*body.add_input(), "iteration", onnx::TensorProto::INT64, {});
  set_type(*body.add_input(), "go", onnx::TensorProto::BOOL, {});
  body.add_input()->set_name("carried");
  add_node(body, "Identity", {"go"}, {"go_on"});
  add_node(body, "Mul", {"carried", "w"}, {"next"});
  set_type(*body.add_output(), "go_on", onnx::TensorProto::BOOL, {});
  body.add_output()->set_name("next");
  set_type(*then_graph.add_output(), "looped", onnx::TensorProto::FLOAT, {"batch", "2"});
  auto& else_graph = *add_attribute(branching, "else_branch", onnx::AttributeProto::GRAPH).mutable_g();
  else_graph.set_name("else");
  set_type(*else_graph.add_output(), "sum", onnx::TensorProto::FLOAT, {"batch", "2"});
  add_metadata(else_graph, "where", "else");
}

void add_initializers(onnx::GraphProto& graph) {
  auto& condition = *graph.add_initializer();
  condition.set_name("condition");
  condition.set_data_type(onnx::TensorProto::BOOL);
  condition.add_int32_data(1);
  condition.set_doc_string("");
  add_metadata(condition, "tensor", "metadata");

  auto& listed = add_floats(graph, "listed", {1, 2, 3});
  listed.set_data_location(onnx::TensorProto::DEFAULT);
  set_type(*graph.add_input(), "listed", onnx::TensorProto::FLOAT, {"n"});
  set_type(*graph.add_input(), "after", onnx::TensorProto::FLOAT, {"?", "", "batch + 1", "odd name!"});

  auto& strings = *graph.add_initializer();
  strings.set_name("strings");
  strings.set_data_type(onnx::TensorProto::STRING);
  strings.add_dims(2);
  strings.add_string_data("first");
  strings.add_string_data("");

  auto& sparse = *graph.add_sparse_initializer();
  sparse.mutable_values()->set_name("sparse");
  sparse.mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
  sparse.mutable_values()->add_dims(2);
  sparse.mutable_values()->add_float_data(1.5F);
  sparse.mutable_values()->add_float_data(2.5F);
  sparse.mutable_indices()->set_data_type(onnx::TensorProto::INT64);
  sparse.mutable_indices()->add_dims(2);
  sparse.mutable_indices()->add_dims(2);
  for (int64_t index : {0, 1, 2, 0}) sparse.mutable_indices()->add_int64_data(index);
  sparse.add_dims(3);
  sparse.add_dims(2);
}

void add_infos(onnx::GraphProto& graph) {
  set_type(*graph.add_value_info(), "sum", onnx::TensorProto::FLOAT, {"batch", "2"});
  graph.mutable_value_info(0)->set_doc_string("documented");
  add_metadata(*graph.mutable_value_info(0), "sharding", "b{dp}");
  set_type(*graph.add_value_info(), "gone", onnx::TensorProto::FLOAT, {"1"});   // of a value that is not there
  set_type(*graph.add_value_info(), "y", onnx::TensorProto::FLOAT, {"", "2"});  // also an output, said differently
  graph.add_value_info()->set_name("everything");                               // no type
  set_type(*graph.add_value_info(), "w", onnx::TensorProto::FLOAT, {"2"});      // of an initializer
  auto& type = *graph.mutable_output(0)->mutable_type();
  type.set_denotation("TENSOR");
  type.mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_denotation("DATA_BATCH");

  add_node(graph, "SequenceConstruct", {"sum", "listed"}, {"sequence"});
  auto& sequence = *graph.add_output();
  sequence.set_name("sequence");
  sequence.mutable_type()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(1);
  auto& optional = *graph.add_value_info();
  optional.set_name("chosen");
  optional.mutable_type()->mutable_optional_type()->mutable_elem_type()->mutable_opaque_type()->set_domain("o");
  auto& annotation = *graph.add_quantization_annotation();
  annotation.set_tensor_name("w");
  annotation.add_quant_parameter_tensor_names()->set_key("SCALE_TENSOR");
}

void add_functions(onnx::ModelProto& model) {
  auto& function = *model.add_functions();
  function.set_domain("custom");
  function.set_name("Everything");
  function.set_overload("float");
  function.set_doc_string("a function");
  for (const char* name : {"a", "b", "c"}) function.add_input(name);
  function.add_output("r");
  function.add_attribute("axis");
  auto& preset = *function.add_attribute_proto();
  preset.set_name("alpha");
  preset.set_type(onnx::AttributeProto::FLOAT);
  preset.set_f(0.5F);
  auto& node = *function.add_node();
  node.set_op_type("Softmax");
  node.add_input("a");
  node.add_output("r");
  auto& reference = *node.add_attribute();
  reference.set_name("axis");
  reference.set_ref_attr_name("axis");
  reference.set_type(onnx::AttributeProto::INT);
  set_type(*function.add_value_info(), "r", onnx::TensorProto::FLOAT, {"m"});
  function.add_opset_import()->set_version(20);
  add_metadata(function, "f", "m");
}

}  // namespace

onnx::ModelProto rich_model() {
  onnx::ModelProto model = small_model();
  model.set_producer_name("");
  model.set_producer_version("1");
  model.set_model_version(0);
  model.set_domain("org.example");
  model.set_doc_string("all of it");
  add_metadata(model, "k", "1");
  add_metadata(model, "k", "2");
  auto& custom = *model.add_opset_import();
  custom.set_domain("custom");
  custom.set_version(1);
  auto& again = *model.add_opset_import();
  again.set_domain("ai.onnx");
  again.set_version(20);
  auto& configuration = *model.add_configuration();
  configuration.set_name("two");
  configuration.set_num_devices(2);
  configuration.add_device("cpu:0");

  auto& graph = *model.mutable_graph();
  graph.set_doc_string("");
  graph.mutable_node(0)->set_domain("ai.onnx");
  graph.mutable_node(1)->set_name("");
  graph.mutable_node(1)->set_domain("");
  add_initializers(graph);
  add_attributes(graph);
  add_control_flow(graph);
  add_infos(graph);
  add_metadata(graph, "graph", "metadata");
  add_functions(model);

  auto& training = *model.add_training_info();
  training.mutable_algorithm()->set_name("sgd");
  add_floats(*training.mutable_algorithm(), "rate", {0.1F});
  training.add_update_binding()->set_key("w");
  training.add_initialization_binding()->set_key("w");
  return model;
}

void add_unknown_fields(google::protobuf::Message& message) {
  const auto* reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      add_unknown_fields(*reflection->MutableMessage(&message, field));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i)
      add_unknown_fields(*reflection->MutableRepeatedMessage(&message, field, i));
  }
  auto* unknown = reflection->MutableUnknownFields(&message);
  unknown->AddVarint(100, 5);
  unknown->AddLengthDelimited(101)->assign("later standard");
  unknown->AddGroup(102)->AddFixed32(1, 7);
  unknown->AddFixed64(103, 9);
}

}  // namespace tessera::test
