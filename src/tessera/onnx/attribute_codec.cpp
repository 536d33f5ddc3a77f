#include "tessera/onnx/attribute_codec.h"

#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/ir/aligned.h"
#include "tessera/onnx/tensor_codec.h"

namespace tessera::codec {
namespace {

using Proto = onnx::AttributeProto;

/// The stated type or, if old or terse writers left it out, the type of the only value present; UNDEFINED if neither
/// determines it.
Proto::AttributeType type_in(const Proto& proto) {
  if (proto.type() != Proto::UNDEFINED) return proto.type();
  const std::pair<bool, Proto::AttributeType> present[] = {
      {proto.has_f(), Proto::FLOAT},        {proto.has_i(), Proto::INT},
      {proto.has_s(), Proto::STRING},       {proto.has_t(), Proto::TENSOR},
      {proto.has_g(), Proto::GRAPH},        {proto.floats_size() > 0, Proto::FLOATS},
      {proto.ints_size() > 0, Proto::INTS}, {proto.strings_size() > 0, Proto::STRINGS},
  };
  Proto::AttributeType type = Proto::UNDEFINED;
  for (auto [is_there, its_type] : present) {
    if (!is_there) continue;
    if (type != Proto::UNDEFINED) return Proto::UNDEFINED;
    type = its_type;
  }
  return type;
}

/// The value, if it is a number, a string or a list of them, and has that type.
std::optional<AttributeValue> plain_value(const Proto& proto, Proto::AttributeType type) {
  switch (type) {
    case Proto::FLOAT:
      return proto.f();
    case Proto::INT:
      return proto.i();
    case Proto::STRING:
      return proto.s();
    case Proto::FLOATS:
      return std::vector<float>(proto.floats().begin(), proto.floats().end());
    case Proto::INTS:
      return std::vector<int64_t>(proto.ints().begin(), proto.ints().end());
    case Proto::STRINGS:
      return std::vector<std::string>(proto.strings().begin(), proto.strings().end());
    default:
      return std::nullopt;
  }
}

void clear_plain(Proto& proto, Proto::AttributeType type) {
  switch (type) {
    case Proto::FLOAT:
      return proto.clear_f();
    case Proto::INT:
      return proto.clear_i();
    case Proto::STRING:
      return proto.clear_s();
    case Proto::FLOATS:
      return proto.clear_floats();
    case Proto::INTS:
      return proto.clear_ints();
    case Proto::STRINGS:
      return proto.clear_strings();
    default:
      return;
  }
}

/// Whether a value of this type is written so that clearing and writing it again gives the same message.
bool is_written(const Proto& proto, Proto::AttributeType type) {
  switch (type) {
    case Proto::FLOAT:
      return proto.has_f();
    case Proto::INT:
      return proto.has_i();
    case Proto::STRING:
      return proto.has_s();
    default:
      return true;
  }
}

bool same_plain(const AttributeValue& a, const AttributeValue& b) {
  if (a.index() != b.index()) return false;
  auto same_floats = [](const float* x, const float* y, size_t count) {  // bitwise: NaN is itself
    return count == 0 || std::memcmp(x, y, count * sizeof(float)) == 0;
  };
  if (const auto* x = std::get_if<float>(&a)) return same_floats(x, &std::get<float>(b), 1);
  if (const auto* x = std::get_if<std::vector<float>>(&a)) {
    const auto& y = std::get<std::vector<float>>(b);
    return x->size() == y.size() && same_floats(x->data(), y.data(), x->size());
  }
  if (const auto* x = std::get_if<int64_t>(&a)) return *x == std::get<int64_t>(b);
  if (const auto* x = std::get_if<std::string>(&a)) return *x == std::get<std::string>(b);
  if (const auto* x = std::get_if<std::vector<int64_t>>(&a)) return *x == std::get<std::vector<int64_t>>(b);
  if (const auto* x = std::get_if<std::vector<std::string>>(&a)) return *x == std::get<std::vector<std::string>>(b);
  return false;
}

/// Writes each kind of value into an AttributeProto.
struct ValueWriter {
  Proto& proto;
  ExternalWriter* external;
  const WriteGraph& write_graph;

  void begin(Proto::AttributeType type) const {
    proto.set_type(type);
    clear_plain(proto, type);
  }
  void operator()(int64_t value) const { begin(Proto::INT), proto.set_i(value); }
  void operator()(float value) const { begin(Proto::FLOAT), proto.set_f(value); }
  void operator()(const std::string& value) const { begin(Proto::STRING), proto.set_s(value); }
  void operator()(const std::vector<int64_t>& values) const {
    begin(Proto::INTS);
    proto.mutable_ints()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<float>& values) const {
    begin(Proto::FLOATS);
    proto.mutable_floats()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<std::string>& values) const {
    begin(Proto::STRINGS);
    for (const std::string& value : values) proto.add_strings(value);
  }
  void operator()(const Tensor& tensor) const {
    proto.set_type(Proto::TENSOR);
    put_tensor(tensor, *proto.mutable_t(), external);
  }
  void operator()(const Region& region) const {
    proto.set_type(Proto::GRAPH);
    write_graph(*region, *proto.mutable_g());
  }
  void operator()(const AttributeReference& reference) const {
    proto.set_ref_attr_name(reference.name);
    if (reference.type != 0) proto.set_type(static_cast<Proto::AttributeType>(reference.type));
  }
  void operator()(const OpaqueAttribute& opaque) const {
    check(proto.ParseFromString(opaque.proto), "what was kept of an attribute can be read back");
    store_external_within(proto, external);
  }
};

}  // namespace

Attribute take_attribute(Proto& proto, ExternalFiles& files, const std::string& owner, const ReadGraph& read_graph) {
  Attribute attribute;
  attribute.name = proto.name();
  if (attribute.name.empty()) fail("import", "{}: an attribute has no name; the file is damaged", owner);
  proto.clear_name();
  Proto::AttributeType type = type_in(proto);
  bool stated = proto.type() != Proto::UNDEFINED;
  if (!proto.ref_attr_name().empty()) {
    attribute.value = AttributeReference{proto.ref_attr_name(), static_cast<int>(proto.type())};
    proto.clear_ref_attr_name();
    if (stated) proto.clear_type();
  } else if (auto value = plain_value(proto, type)) {
    attribute.value = std::move(*value);
    if (stated && is_written(proto, type)) {
      clear_plain(proto, type);
      proto.clear_type();
    }
  } else if (type == Proto::TENSOR && stated && proto.has_t()) {
    attribute.value = aligned(take_tensor(*proto.mutable_t(), files, fmt::format("{} of {}", attribute.name, owner)));
    proto.clear_type();
  } else if (type == Proto::GRAPH && stated && proto.has_g()) {
    attribute.value = Region(read_graph(*proto.mutable_g()));
    proto.clear_g();
    proto.clear_type();
  } else {
    load_external_within(proto, files);
    attribute.value = OpaqueAttribute{proto.SerializeAsString()};
    return attribute;
  }
  attribute.extra = proto.SerializeAsString();
  return attribute;
}

void put_attribute(const Attribute& attribute, Proto& proto, ExternalWriter* external, const WriteGraph& write_graph) {
  check(proto.ParseFromString(attribute.extra), "what was kept of an attribute can be read back");
  auto kept = plain_value(proto, type_in(proto));
  if (!kept || !same_plain(*kept, attribute.value))
    std::visit(ValueWriter{proto, external, write_graph}, attribute.value);
  proto.set_name(attribute.name);
}

}  // namespace tessera::codec
