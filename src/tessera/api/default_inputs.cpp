#include "tessera/default_inputs.h"

#include <algorithm>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compiler/tensor_info.h"
#include "tessera/io/npz.h"
#include "tessera/onnx/default_inputs.h"

namespace tessera {
inline namespace v1 {
namespace {

// A tensor that a folder names otherwise belongs to the input of its number.
std::vector<std::string> arrays_of(const std::filesystem::path& path, const std::vector<TensorInfo>& ports) {
  std::vector<std::string> names;
  if (std::filesystem::is_directory(path)) {
    for (const auto& [name, tensor] : read_tensors(path, "input", ports)) names.push_back(name);
  } else {
    read_npz(path, {[&](const std::string& name) {
                      names.push_back(name);
                      return false;
                    },
                    0});
  }
  return names;
}

}  // namespace

std::vector<TensorInfo> default_inputs(const Model& model) {
  std::vector<TensorInfo> all;
  for (const DefaultInput& input : tessera::default_inputs(model.impl().model))
    all.push_back(compiler::info_of(input.value->name, input.type));
  return all;
}

Model with_inputs(const Model& model, const std::vector<std::string>& names) {
  if (names.empty()) return model;
  OnnxModel own = model.impl().model.clone();
  const std::vector<DefaultInput> known = tessera::default_inputs(own);
  for (const std::string& name : names) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const DefaultInput& input) { return input.value->name == name; });
    if (found == known.end() || found->value->kind == ValueKind::input)
      fail("inputs", "'{}' is not an initializer that the model also lists as an input, so it cannot be given", name);
    Value& value = *found->value;
    value.kind = ValueKind::input;
    value.type = found->type;
    value.data = {};
    value.data_extra.clear();
    value.content.reset();
    own.graph->inputs.push_back(&value);
  }
  return api::model_of(model, std::move(own));
}

Model fed_by(const Model& model, const std::filesystem::path& path) {
  const std::vector<TensorInfo> known = default_inputs(model);
  if (known.empty()) return model;
  std::vector<TensorInfo> ports = model.inputs();
  ports.insert(ports.end(), known.begin(), known.end());
  const std::vector<std::string> arrays = arrays_of(path, ports);
  std::vector<std::string> given;
  for (const TensorInfo& input : known)
    if (std::find(arrays.begin(), arrays.end(), input.name) != arrays.end()) given.push_back(input.name);
  return with_inputs(model, given);
}

}  // namespace v1
}  // namespace tessera
