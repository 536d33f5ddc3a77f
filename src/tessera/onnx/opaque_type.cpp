#include "tessera/onnx/opaque_type.h"

#include "tessera/base/error.h"
#include "tessera/onnx.pb.h"

namespace tessera {

void set_opaque_type(Value& value, std::string_view domain, std::string_view name) {
  onnx::ValueInfoProto info;
  check(info.ParseFromString(value.extra), "what was kept of a value can be read back");
  auto* type = info.mutable_type()->mutable_opaque_type();
  type->set_domain(std::string(domain));
  type->set_name(std::string(name));
  value.type = {};
  value.extra = info.SerializeAsString();
}

bool has_opaque_type(const Value& value, std::string_view domain, std::string_view name) {
  onnx::ValueInfoProto info;
  if (!info.ParseFromString(value.extra) || info.type().value_case() != onnx::TypeProto::kOpaqueType) return false;
  return info.type().opaque_type().domain() == domain && info.type().opaque_type().name() == name;
}

}  // namespace tessera
