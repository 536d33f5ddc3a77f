#include "tessera/default_inputs.h"

#include <algorithm>

#include "tessera/api/impl.h"
#include "tessera/compiler/tensor_info.h"
#include "tessera/onnx/default_inputs.h"
#include "tessera/onnx/tensor_files.h"

namespace tessera {
inline namespace v1 {

std::vector<TensorInfo> default_inputs(const Model& model) {
  std::vector<TensorInfo> all;
  for (const DefaultInput& input : tessera::default_inputs(model.impl().model))
    all.push_back(compiler::info_of(input.value->name, input.type));
  return all;
}

Model with_inputs(const Model& model, const std::vector<std::string>& names) {
  if (names.empty()) return model;
  OnnxModel own = model.impl().model.clone();
  make_inputs(own, names);
  return api::model_of(model, std::move(own));
}

Model fed_by(const Model& model, const std::filesystem::path& path) {
  const std::vector<TensorInfo> known = default_inputs(model);
  if (known.empty()) return model;
  std::vector<TensorInfo> ports = model.inputs();
  ports.insert(ports.end(), known.begin(), known.end());
  const std::vector<std::string> arrays = names_in(path, ports);
  std::vector<std::string> given;
  for (const TensorInfo& input : known)
    if (std::find(arrays.begin(), arrays.end(), input.name) != arrays.end()) given.push_back(input.name);
  return with_inputs(model, given);
}

}  // namespace v1
}  // namespace tessera
