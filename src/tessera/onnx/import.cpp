#include "tessera/onnx/import.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <limits>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/attribute_codec.h"
#include "tessera/onnx/graph_reader.h"
#include "tessera/onnx/opset_imports.h"
#include "tessera/onnx/skeleton.h"
#include "tessera/onnx/tensor_codec.h"

namespace tessera {
namespace {

constexpr int64_t kFirstIrVersion = 3, kLastIrVersion = 14;
constexpr int64_t kFirstOpset = 1, kLastOpset = 28;

void check_ir_version(int64_t version, const std::string& source) {
  if (version >= kFirstIrVersion && version <= kLastIrVersion) return;
  const std::string fix =
      version < kFirstIrVersion
          ? "export it again"
          : fmt::format(
                "export it with an older version of onnx or, if it uses nothing newer, set its ir_version to {}",
                kLastIrVersion);
  fail("import", "'{}' has IR version {}; supported are {} to {}: {}", source, version, kFirstIrVersion, kLastIrVersion,
       fix);
}

void check_opset(const std::map<std::string, int64_t>& imports, std::string_view what) {
  auto found = imports.find("");
  if (found == imports.end() || (found->second >= kFirstOpset && found->second <= kLastOpset)) return;
  fail("import",
       "{} uses version {} of ONNX's operator set; supported are {} to {}: convert it with "
       "onnx.version_converter or export it again",
       what, found->second, kFirstOpset, kLastOpset);
}

/// Without an import of the default operator set, the model must not use its operators.
void check_domains(const Graph& graph, const std::map<std::string, int64_t>& imports, std::string_view what) {
  if (imports.contains("")) return;
  for (const auto& node : graph.nodes())
    if (node->domain.empty())
      fail("import",
           "{} imports no version of ONNX's operator set, which {} needs; add an opset_import for the domain "
           "\"\"",
           what, node->label());
}

void check_functions(const std::vector<Function>& functions) {
  std::set<std::tuple<std::string, std::string, std::string>> known;
  for (const Function& function : functions)
    if (!known.emplace(function.domain, function.name, function.overload).second)
      fail("import", "the function '{}' of domain '{}' is defined twice", function.name, function.domain);
}

Function read_function(onnx::FunctionProto& proto, codec::ExternalFiles& files) {
  Function function;
  function.name = proto.name();
  if (function.name.empty()) fail("import", "a function has no name; the file is damaged");
  std::string where = fmt::format("function '{}'", function.name);
  function.body = codec::GraphReader(files, where).read_body(proto);
  proto.clear_name();
  if (proto.domain() != "ai.onnx") {
    function.domain = proto.domain();
    if (!function.domain.empty()) proto.clear_domain();
  }
  function.overload = proto.overload();
  if (!function.overload.empty()) proto.clear_overload();
  function.attributes.assign(proto.attribute().begin(), proto.attribute().end());
  proto.clear_attribute();
  auto read_nested = [&](onnx::GraphProto& nested) -> std::unique_ptr<Graph> {
    return codec::GraphReader(files, where).read(nested);
  };
  for (auto& attribute : *proto.mutable_attribute_proto())
    function.defaults.push_back(codec::take_attribute(attribute, files, where, read_nested));
  proto.clear_attribute_proto();
  function.opset_imports = codec::opset_map(proto.opset_import(), where);
  check_opset(function.opset_imports, where);
  check_domains(*function.body, function.opset_imports, where);
  function.extra = proto.SerializeAsString();
  return function;
}

onnx::ModelProto parse(const std::string& bytes, const std::string& source) {
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail("import", "'{}' holds more than 2 GiB beside its large initializers; store its tensors as external data",
         source);
  onnx::ModelProto proto;
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
  if (!proto.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    fail("import", "'{}' is not a readable ONNX model: it is damaged, or its messages are nested more than 100 deep",
         source);
  return proto;
}

OnnxModel read_model(std::shared_ptr<const MappedFile> file, codec::ExternalFiles files, std::string source,
                     std::vector<uint64_t>* identities) {
  codec::Skeleton skeleton = codec::cut_large_raw(file->view(), source);
  onnx::ModelProto proto = parse(skeleton.bytes, source);
  std::string().swap(skeleton.bytes);
  if (!proto.has_ir_version() || !proto.has_graph())
    fail("import", "'{}' is not an ONNX model: it has no {}", source, proto.has_ir_version() ? "graph" : "IR version");
  check_ir_version(proto.ir_version(), source);

  OnnxModel model;
  model.ir_version = proto.ir_version();
  model.opset_imports = codec::opset_map(proto.opset_import(), fmt::format("'{}'", source));
  check_opset(model.opset_imports, fmt::format("'{}'", source));
  auto cut_raw = [&](int initializer) -> std::optional<codec::MappedRange> {
    auto cut = skeleton.cut_raw.find(initializer);
    if (cut == skeleton.cut_raw.end()) return std::nullopt;
    return codec::MappedRange{file, {file->data() + cut->second.offset, cut->second.length}};
  };
  std::string where = fmt::format("graph '{}'", proto.graph().name());
  model.graph = codec::GraphReader(files, where).read(*proto.mutable_graph(), cut_raw);
  check_domains(*model.graph, model.opset_imports, where);

  for (auto& function : *proto.mutable_functions()) model.functions.push_back(read_function(function, files));
  check_functions(model.functions);
  proto.clear_ir_version();
  proto.clear_graph();
  proto.clear_functions();
  codec::load_external_within(proto, files);  // training information holds whole graphs
  model.extra = proto.SerializeAsString();
  if (identities) {
    identities->push_back(file->identity());
    files.append_identities(*identities);
  }
  return model;
}

void shorten_domain(std::map<std::string, int64_t>& imports, const std::string& what) {
  auto long_form = imports.extract("ai.onnx");
  if (long_form.empty()) return;
  long_form.key() = "";
  if (!imports.insert(std::move(long_form)).inserted)
    fail("import", "{} imports ONNX's operator set as \"\" and as \"ai.onnx\"; name it once", what);
}

void shorten_domains(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->domain == "ai.onnx") node->domain.clear();
    for (const Graph* region : node->regions()) shorten_domains(*region);
  }
}

// The text refers to no other files.
OnnxModel read_text(const MappedFile& file, const std::string& source, std::vector<uint64_t>* identities) {
  OnnxModel model = parse_text(file.view(), source);
  check_ir_version(model.ir_version, source);
  auto settle = [](Graph& graph, std::map<std::string, int64_t>& imports, const std::string& what) {
    shorten_domains(graph);
    shorten_domain(imports, what);
    check_opset(imports, what);
    check_domains(graph, imports, what);
  };
  settle(*model.graph, model.opset_imports, fmt::format("'{}'", source));
  for (Function& function : model.functions)
    settle(*function.body, function.opset_imports, fmt::format("function '{}' of '{}'", function.name, source));
  check_functions(model.functions);
  if (identities) identities->push_back(file.identity());
  return model;
}

}  // namespace

bool is_text_model(const std::filesystem::path& path) {
  return path.extension() == ".onnxtxt" || path.extension() == ".onnxtext";
}

OnnxModel import_model(const std::filesystem::path& path, std::vector<uint64_t>* identities) {
  const auto file = MappedFile::open(path, "import");
  OnnxModel model = is_text_model(path)
                        ? read_text(*file, path.string(), identities)
                        : read_model(file, codec::ExternalFiles::beside(path), path.string(), identities);
  model.source = path.string();
  return model;
}

OnnxModel import_model_bytes(std::string_view bytes, const std::filesystem::path& base_dir) {
  return read_model(MappedFile::copy_of(bytes), codec::ExternalFiles({base_dir}), "model in memory", nullptr);
}

}  // namespace tessera
