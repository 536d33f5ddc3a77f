#include "tessera/onnx/typed_elements.h"

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/onnx/strings.h"

namespace tessera::codec {
namespace {

/// The layout of a type's elements in its typed field.
enum class Field { float_data, double_data, int32_data, int64_data, uint64_data, string_data };

struct Layout {
  Field field;
  int entries;  ///< per group of `elements`
  int elements;
};

Layout layout_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return {Field::float_data, 1, 1};
    case DType::complex64:
      return {Field::float_data, 2, 1};
    case DType::float64:
      return {Field::double_data, 1, 1};
    case DType::complex128:
      return {Field::double_data, 2, 1};
    case DType::int64:
      return {Field::int64_data, 1, 1};
    case DType::uint64:
    case DType::uint32:
      return {Field::uint64_data, 1, 1};
    case DType::string:
      return {Field::string_data, 1, 1};
    case DType::uint4:
    case DType::int4:
    case DType::float4e2m1:
      return {Field::int32_data, 1, 2};
    case DType::uint2:
    case DType::int2:
      return {Field::int32_data, 1, 4};
    default:
      return {Field::int32_data, 1, 1};
  }
}

int64_t entries_of(const Layout& layout, int64_t count) {
  return (count + layout.elements - 1) / layout.elements * layout.entries;
}

int entries_in(const onnx::TensorProto& proto, Field field) {
  switch (field) {
    case Field::float_data:
      return proto.float_data_size();
    case Field::double_data:
      return proto.double_data_size();
    case Field::int32_data:
      return proto.int32_data_size();
    case Field::int64_data:
      return proto.int64_data_size();
    case Field::uint64_data:
      return proto.uint64_data_size();
    case Field::string_data:
      return proto.string_data_size();
  }
  return 0;
}

template <typename Stored, typename Entries>
void copy_entries(const Entries& entries, Tensor& tensor) {
  auto* out = reinterpret_cast<Stored*>(tensor.mutable_data());
  for (int i = 0; i < entries.size(); ++i) out[i] = static_cast<Stored>(entries[i]);
}

template <typename Stored, typename Entries>
void add_entries(const Tensor& tensor, Entries& entries) {
  size_t count = tensor.bytes / sizeof(Stored);
  entries.Reserve(static_cast<int>(count));
  for (size_t i = 0; i < count; ++i) {
    Stored element;  // mapped data may be unaligned
    std::memcpy(&element, tensor.data + i * sizeof(Stored), sizeof(Stored));
    entries.Add(element);
  }
}

bool is_float6(DType dtype) {
  return dtype == DType::float6e2m3 || dtype == DType::float6e3m2;
}

// Six-bit elements follow each other in a bit stream, lowest bits first; each entry of the field is one element.
void pack_float6(const google::protobuf::RepeatedField<int32_t>& entries, Tensor& tensor) {
  std::byte* out = tensor.mutable_data();
  for (int i = 0; i < entries.size(); ++i) {
    size_t bit = static_cast<size_t>(i) * 6;
    unsigned shifted = (static_cast<unsigned>(entries[i]) & 0x3f) << (bit % 8);
    out[bit / 8] |= static_cast<std::byte>(shifted & 0xff);
    if (shifted >> 8) out[bit / 8 + 1] |= static_cast<std::byte>(shifted >> 8);
  }
}

void unpack_float6(const Tensor& tensor, google::protobuf::RepeatedField<int32_t>& entries) {
  for (int64_t i = 0; i < tensor.count(); ++i) {
    size_t bit = static_cast<size_t>(i) * 6;
    unsigned window = std::to_integer<unsigned>(tensor.data[bit / 8]);
    if (bit % 8 > 2) window |= std::to_integer<unsigned>(tensor.data[bit / 8 + 1]) << 8;
    entries.Add(static_cast<int32_t>((window >> (bit % 8)) & 0x3f));
  }
}

void read_int32(const onnx::TensorProto& proto, DType dtype, Tensor& tensor) {
  const auto& entries = proto.int32_data();
  if (is_float6(dtype)) return pack_float6(entries, tensor);
  if (dtype == DType::boolean) {
    for (int i = 0; i < entries.size(); ++i) tensor.mutable_data()[i] = static_cast<std::byte>(entries[i] != 0);
    return;
  }
  switch (bits_of(dtype)) {
    case 32:
      return copy_entries<int32_t>(entries, tensor);
    case 16:
      return copy_entries<uint16_t>(entries, tensor);
    default:
      return copy_entries<uint8_t>(entries, tensor);
  }
}

void write_int32(const Tensor& tensor, google::protobuf::RepeatedField<int32_t>& entries) {
  if (is_float6(tensor.dtype)) return unpack_float6(tensor, entries);
  switch (tensor.dtype) {
    case DType::int32:
      return add_entries<int32_t>(tensor, entries);
    case DType::int16:
      return add_entries<int16_t>(tensor, entries);
    case DType::int8:
      return add_entries<int8_t>(tensor, entries);
    default:
      return bits_of(tensor.dtype) == 16 ? add_entries<uint16_t>(tensor, entries)
                                         : add_entries<uint8_t>(tensor, entries);
  }
}

}  // namespace

size_t typed_entries(const onnx::TensorProto& proto) {
  size_t entries = 0;
  for (Field field : {Field::float_data, Field::double_data, Field::int32_data, Field::int64_data, Field::uint64_data,
                      Field::string_data})
    entries += static_cast<size_t>(entries_in(proto, field));
  return entries;
}

void clear_typed(onnx::TensorProto& proto) {
  proto.clear_float_data();
  proto.clear_double_data();
  proto.clear_int32_data();
  proto.clear_int64_data();
  proto.clear_uint64_data();
  proto.clear_string_data();
}

Tensor read_typed(const onnx::TensorProto& proto, DType dtype, const Dims& dims, const std::string& name) {
  if (auto tensor = try_read_typed(proto, dtype, dims)) return *tensor;
  Layout layout = layout_of(dtype);
  fail("import", "tensor '{}': {} entries are stored where its extents and type {} need {}; the file is damaged", name,
       entries_in(proto, layout.field), name_of(dtype), entries_of(layout, count_of(dims)));
}

std::optional<Tensor> try_read_typed(const onnx::TensorProto& proto, DType dtype, const Dims& dims) {
  Layout layout = layout_of(dtype);
  if (entries_in(proto, layout.field) != entries_of(layout, count_of(dims))) return std::nullopt;
  if (layout.field == Field::string_data)
    return string_tensor(dims, {proto.string_data().begin(), proto.string_data().end()});
  Tensor tensor = Tensor::zeros(dtype, dims);
  switch (layout.field) {
    case Field::float_data:
      copy_entries<float>(proto.float_data(), tensor);
      break;
    case Field::double_data:
      copy_entries<double>(proto.double_data(), tensor);
      break;
    case Field::int64_data:
      copy_entries<int64_t>(proto.int64_data(), tensor);
      break;
    case Field::uint64_data:
      dtype == DType::uint32 ? copy_entries<uint32_t>(proto.uint64_data(), tensor)
                             : copy_entries<uint64_t>(proto.uint64_data(), tensor);
      break;
    default:
      read_int32(proto, dtype, tensor);
  }
  return tensor;
}

void write_typed(const Tensor& tensor, onnx::TensorProto& proto) {
  switch (layout_of(tensor.dtype).field) {
    case Field::float_data:
      return add_entries<float>(tensor, *proto.mutable_float_data());
    case Field::double_data:
      return add_entries<double>(tensor, *proto.mutable_double_data());
    case Field::int64_data:
      return add_entries<int64_t>(tensor, *proto.mutable_int64_data());
    case Field::uint64_data:
      return tensor.dtype == DType::uint32 ? add_entries<uint32_t>(tensor, *proto.mutable_uint64_data())
                                           : add_entries<uint64_t>(tensor, *proto.mutable_uint64_data());
    case Field::string_data:
      for (std::string& element : strings_of(tensor)) proto.add_string_data(std::move(element));
      return;
    case Field::int32_data:
      return write_int32(tensor, *proto.mutable_int32_data());
  }
}

}  // namespace tessera::codec
