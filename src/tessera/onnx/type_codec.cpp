#include "tessera/onnx/type_codec.h"

#include "tessera/base/error.h"

namespace tessera::codec {
namespace {

/// A symbol for a text that is not an expression. If it is too long for a person to have written it, its beginning and
/// a hash (FNV-1a, 64 bits) stand for the whole, so that messages stay short.
Expr opaque(const std::string& text) {
  constexpr size_t kLongest = 256, kShown = 32;
  if (text.size() <= kLongest) return Expr::symbol(text);
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return Expr::symbol(fmt::format("{}...{:016x}", text.substr(0, kShown), hash));
}

Expr extent_of(const onnx::TensorShapeProto::Dimension& dim, const std::string& name, int index) {
  if (dim.value_case() == onnx::TensorShapeProto::Dimension::kDimValue && dim.dim_value() >= 0) return dim.dim_value();
  // Some exporters write "?" for "unknown": two of them are not one symbol.
  if (dim.value_case() == onnx::TensorShapeProto::Dimension::kDimParam && !dim.dim_param().empty() &&
      dim.dim_param() != "?") {
    if (auto parsed = Expr::parse(dim.dim_param())) return *parsed;
    return opaque(dim.dim_param());
  }
  return Expr::symbol(fmt::format("{}_dim_{}", name, index));
}

}  // namespace

TensorType type_of(const onnx::ValueInfoProto& info) {
  TensorType type;
  if (!info.has_type() || info.type().value_case() != onnx::TypeProto::kTensorType) return type;
  const auto& tensor = info.type().tensor_type();
  auto dtype = static_cast<DType>(tensor.elem_type());
  if (name_of(dtype) == "undefined") return type;
  type.dtype = dtype;
  if (!tensor.has_shape()) return type;
  Shape& shape = type.shape.emplace();
  for (int i = 0; i < tensor.shape().dim_size(); ++i) shape.push_back(extent_of(tensor.shape().dim(i), info.name(), i));
  return type;
}

bool admits(const TensorType& said, const TensorType& actual) {
  if (said.dtype == DType::undefined) return true;
  if (said.dtype != actual.dtype) return false;
  if (!said.shape || !actual.shape) return true;
  if (said.shape->size() != actual.shape->size()) return false;
  for (size_t i = 0; i < said.shape->size(); ++i)
    if ((*said.shape)[i].is_constant() && (*actual.shape)[i].is_constant() && (*said.shape)[i] != (*actual.shape)[i])
      return false;
  return true;
}

void put_type(const TensorType& type, onnx::ValueInfoProto& info) {
  if (type.dtype == DType::undefined) return;
  TensorType said = type_of(info);
  if (said == type) return;
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(static_cast<int32_t>(type.dtype));
  if (!type.shape) {
    tensor->clear_shape();
    return;
  }
  auto* shape = tensor->mutable_shape();
  if (shape->dim_size() != static_cast<int>(type.shape->size())) {
    shape->clear_dim();
    said.shape.reset();
  }
  for (size_t i = 0; i < type.shape->size(); ++i) {
    const Expr& extent = (*type.shape)[i];
    if (said.shape && (*said.shape)[i] == extent) continue;
    auto* dim = static_cast<int>(i) < shape->dim_size() ? shape->mutable_dim(static_cast<int>(i)) : shape->add_dim();
    if (extent.is_constant())
      dim->set_dim_value(*extent.constant());
    else
      dim->set_dim_param(extent.str());
  }
}

void put_info(const Value& value, const std::string& name, onnx::ValueInfoProto& info) {
  check(info.ParseFromString(value.extra), "what was kept of a value can be read back");
  // Data have constant extents; a declaration that gives them symbolic names stays as it is.
  bool admitted = value.has_data() && info.has_type() && admits(type_of(info), value.type);
  if (!admitted) put_type(value.type, info);
  info.set_name(name);
}

}  // namespace tessera::codec
