#pragma once

#include <gmock/gmock.h>
#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "io/temporary_folder.h"
#include "tessera/base/error.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/export.h"
#include "tessera/onnx/import.h"

namespace tessera::test {

using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

inline onnx::ModelProto parsed(const std::string& bytes) {
  onnx::ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(bytes));
  return proto;
}

/// Equal in every field, unknown ones included; NaN is itself.
inline testing::AssertionResult equal(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  google::protobuf::util::MessageDifferencer differencer;
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  differencer.set_field_comparator(&comparator);
  std::string report;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(a, b)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << report.substr(0, 4000);
}

inline onnx::ModelProto round_trip(const onnx::ModelProto& proto) {
  return parsed(export_model_bytes(import_model_bytes(proto.SerializeAsString())));
}

/// The user error of an import; fails the test if the import throws nothing.
inline std::string import_error(const std::string& bytes, const std::filesystem::path& folder = {}) {
  try {
    import_model_bytes(bytes, folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "the import succeeds";
  return "";
}
inline std::string import_error(const onnx::ModelProto& proto, const std::filesystem::path& folder = {}) {
  return import_error(proto.SerializeAsString(), folder);
}

inline void set_type(onnx::ValueInfoProto& info, const std::string& name, int dtype,
                     const std::vector<std::string>& dims) {
  info.set_name(name);
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(dtype);
  tensor->mutable_shape();
  for (const std::string& dim : dims) {
    auto* added = tensor->mutable_shape()->add_dim();
    if (dim.empty()) continue;
    if (std::isdigit(static_cast<unsigned char>(dim[0])))
      added->set_dim_value(std::stoll(dim));
    else
      added->set_dim_param(dim);
  }
}

inline onnx::NodeProto& add_node(onnx::GraphProto& graph, const std::string& type, std::vector<std::string> inputs,
                                 std::vector<std::string> outputs) {
  auto& node = *graph.add_node();
  node.set_op_type(type);
  for (auto& input : inputs) node.add_input(std::move(input));
  for (auto& output : outputs) node.add_output(std::move(output));
  return node;
}

inline onnx::TensorProto& add_floats(onnx::GraphProto& graph, const std::string& name, const std::vector<float>& data) {
  auto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.add_dims(static_cast<int64_t>(data.size()));
  tensor.set_raw_data(data.data(), data.size() * sizeof(float));
  return tensor;
}

/// y = Relu(x + w), with x of shape [batch, 2].
inline onnx::ModelProto small_model() {
  onnx::ModelProto model;
  model.set_ir_version(10);
  model.add_opset_import()->set_version(20);
  auto& graph = *model.mutable_graph();
  graph.set_name("main");
  set_type(*graph.add_input(), "x", onnx::TensorProto::FLOAT, {"batch", "2"});
  add_floats(graph, "w", {1.5F, -2});
  add_node(graph, "Add", {"x", "w"}, {"sum"});
  add_node(graph, "Relu", {"sum"}, {"y"});
  set_type(*graph.add_output(), "y", onnx::TensorProto::FLOAT, {"batch", "2"});
  return model;
}

}  // namespace tessera::test
