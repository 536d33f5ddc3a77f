#include "tessera/onnx/export.h"

#include <limits>

#include "tessera/base/error.h"
#include "tessera/io/atomic_file.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/attribute_codec.h"
#include "tessera/onnx/external_writer.h"
#include "tessera/onnx/graph_writer.h"
#include "tessera/onnx/opset_imports.h"
#include "tessera/onnx/tensor_codec.h"

namespace tessera {
namespace {

void put_function(const Function& function, onnx::FunctionProto& proto, codec::ExternalWriter* external,
                  bool all_infos) {
  check(proto.ParseFromString(function.extra), "what was kept of a function can be read back");
  proto.set_name(function.name);
  if (!function.domain.empty()) proto.set_domain(function.domain);
  if (!function.overload.empty()) proto.set_overload(function.overload);
  for (const std::string& attribute : function.attributes) proto.add_attribute(attribute);
  auto write_nested = [&](const Graph& nested, onnx::GraphProto& into) {
    codec::GraphWriter(nested, external, all_infos).write(into);
  };
  for (const Attribute& attribute : function.defaults)
    codec::put_attribute(attribute, *proto.add_attribute_proto(), external, write_nested);
  codec::put_opsets(function.opset_imports, *proto.mutable_opset_import());
  codec::GraphWriter(*function.body, external, all_infos).write_body(proto);
}

void put_model(const OnnxModel& model, onnx::ModelProto& proto, codec::ExternalWriter* external, bool all_infos) {
  check(proto.ParseFromString(model.extra), "what was kept of a model can be read back");
  codec::store_external_within(proto, external);
  proto.set_ir_version(model.ir_version);
  codec::put_opsets(model.opset_imports, *proto.mutable_opset_import());
  codec::GraphWriter(*model.graph, external, all_infos).write(*proto.mutable_graph());
  for (const Function& function : model.functions) put_function(function, *proto.add_functions(), external, all_infos);
}

std::string serialized(const onnx::ModelProto& proto) {
  size_t bytes = proto.ByteSizeLong();
  if (bytes > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail("export",
         "the model takes {} bytes, and an ONNX file can hold 2 GiB; write its large tensors as external data "
         "(ExportOptions::external_threshold)",
         bytes);
  return proto.SerializeAsString();
}

}  // namespace

std::string export_model_bytes(const OnnxModel& model) {
  onnx::ModelProto proto;
  put_model(model, proto, nullptr, false);
  return serialized(proto);
}

void export_model(const OnnxModel& model, const std::filesystem::path& path, const ExportOptions& options) {
  std::string external_file = options.external_file;
  if (external_file.empty()) external_file = path.filename().string() + ".data";
  codec::ExternalWriter external(path.parent_path(), options.external_threshold, external_file, &options.stored);
  onnx::ModelProto proto;
  put_model(model, proto, &external, options.value_info);
  external.assign();
  std::string bytes = serialized(proto);
  AtomicFile file(path);
  external.write();
  file.write(bytes);
  file.sync();
  external.commit();
  file.commit();
}

}  // namespace tessera
