#include "tessera/compiler/tensor_info.h"

namespace tessera::compiler {

TensorInfo info_of(std::string_view name, const TensorType& type) {
  TensorInfo info{std::string(name), type.dtype, {}};
  if (type.shape)
    for (const Expr& extent : *type.shape) info.shape.push_back(extent.str());
  return info;
}

TensorInfo info_of(const Value& value) {
  return info_of(value.name, value.type);
}

}  // namespace tessera::compiler
