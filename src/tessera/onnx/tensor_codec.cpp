#include "tessera/onnx/tensor_codec.h"

#include <bit>
#include <charconv>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/ir/aligned.h"
#include "tessera/onnx/external_writer.h"
#include "tessera/onnx/typed_elements.h"

namespace tessera::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian and used as it is");

/// Checks that extents are not negative, and that there are fewer than 2^48 elements.
Dims checked_dims(const google::protobuf::RepeatedField<int64_t>& extents, const std::string& name) {
  constexpr int64_t kLimit = int64_t{1} << 48;
  bool empty = false;
  for (int64_t extent : extents) {
    if (extent < 0) fail("import", "tensor '{}': its extent {} is negative; the file is damaged", name, extent);
    empty |= extent == 0;
  }
  int64_t count = 1;
  for (int64_t extent : extents)
    if (!empty && __builtin_mul_overflow(count, extent, &count)) count = kLimit;
  if (count >= kLimit) fail("import", "tensor '{}': its extents are impossibly large; the file is damaged", name);
  return {extents.begin(), extents.end()};
}

DType checked_dtype(const onnx::TensorProto& proto, const std::string& name) {
  auto dtype = static_cast<DType>(proto.data_type());
  if (dtype == DType::undefined || name_of(dtype) == "undefined")
    fail("import", "tensor '{}': element type {} is not one of ONNX's up to IR version 14", name, proto.data_type());
  return dtype;
}

void check_size(const Dims& dims, DType dtype, size_t bytes, const std::string& name) {
  size_t wanted = bytes_of(dtype, count_of(dims));
  if (bytes != wanted)
    fail("import", "tensor '{}': {} bytes are stored where its extents and type {} need {}; the file is damaged", name,
         bytes, name_of(dtype), wanted);
}

/// A view of mapped bytes, aligned or not.
Tensor from_mapped(DType dtype, Dims dims, const MappedRange& range) {
  return {dtype, std::move(dims), range.file, range.bytes.data(), range.bytes.size()};
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.dims == b.dims && a.bytes == b.bytes &&
         (a.bytes == 0 || std::memcmp(a.data, b.data, a.bytes) == 0);
}

bool same_typed(const onnx::TensorProto& a, const onnx::TensorProto& b) {
  auto equal = [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin());
  };
  auto bitwise = [](const auto& x, const auto& y) {
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  };
  return bitwise(a.float_data(), b.float_data()) && bitwise(a.double_data(), b.double_data()) &&
         equal(a.int32_data(), b.int32_data()) && equal(a.int64_data(), b.int64_data()) &&
         equal(a.uint64_data(), b.uint64_data()) && equal(a.string_data(), b.string_data());
}

uint64_t number_in(const onnx::StringStringEntryProto& entry, const std::string& name) {
  uint64_t number = 0;
  const std::string& text = entry.value();
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    fail("import", "tensor '{}': the external data {} '{}' is not a number of bytes; the file is damaged", name,
         entry.key(), text);
  return number;
}

}  // namespace

ExternalRange external_range(const onnx::TensorProto& proto, const std::string& name) {
  ExternalRange range;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") range.location = entry.value();
    if (entry.key() == "offset") range.offset = number_in(entry, name);
    if (entry.key() == "length") range.length = number_in(entry, name);
  }
  return range;
}

void set_external_range(onnx::TensorProto& proto, const ExternalRange& range) {
  proto.set_data_location(onnx::TensorProto::EXTERNAL);
  auto set = [&](std::string_view key, std::string value) {
    for (auto& entry : *proto.mutable_external_data())
      if (entry.key() == key) {
        entry.set_value(std::move(value));
        return;
      }
    auto* entry = proto.add_external_data();
    entry->set_key(std::string(key));
    entry->set_value(std::move(value));
  };
  set("location", range.location);
  set("offset", std::to_string(range.offset));
  if (range.length) set("length", std::to_string(*range.length));
}

void refer_to_stored(const Tensor& tensor, const ExternalRange& range, onnx::TensorProto& proto) {
  proto.set_data_type(static_cast<int32_t>(tensor.dtype));
  for (int64_t extent : tensor.dims) proto.add_dims(extent);
  set_external_range(proto, range);
}

Tensor take_tensor(onnx::TensorProto& proto, ExternalFiles& files, const std::string& name,
                   const std::optional<MappedRange>& raw) {
  if (proto.has_segment())
    fail("import", "tensor '{}' is stored in segments, which no ONNX version defines; store it whole", name);
  DType dtype = checked_dtype(proto, name);
  Dims dims = checked_dims(proto.dims(), name);
  bool external = proto.data_location() == onnx::TensorProto::EXTERNAL;
  bool typed = typed_entries(proto) > 0;
  if (int(external) + int(typed) + int(proto.has_raw_data()) > 1)
    fail("import", "tensor '{}': its elements are stored in two ways at once; store them once", name);
  proto.clear_dims();
  if (dtype == DType::string && (external || proto.has_raw_data()))
    fail("import", "tensor '{}': strings must be stored in string_data", name);

  if (external) {
    MappedRange range = files.read(external_range(proto, name), name);
    check_size(dims, dtype, range.bytes.size(), name);
    proto.clear_data_type();
    return from_mapped(dtype, std::move(dims), range);
  }
  if (proto.has_raw_data()) {
    check_size(dims, dtype, raw ? raw->bytes.size() : proto.raw_data().size(), name);
    Tensor tensor = raw ? from_mapped(dtype, std::move(dims), *raw)
                        : Tensor::copy_of(dtype, std::move(dims), proto.raw_data().data(), proto.raw_data().size());
    proto.clear_raw_data();
    proto.clear_data_type();
    return tensor;
  }
  Tensor tensor = read_typed(proto, dtype, dims, name);
  onnx::TensorProto again;
  write_typed(tensor, again);
  if (same_typed(proto, again)) clear_typed(proto);
  return tensor;  // data_type stays: the mark of the typed form
}

void put_tensor(const Tensor& tensor, onnx::TensorProto& rest, ExternalWriter* external) {
  check(tensor.dtype != DType::undefined, "a tensor to be written has a type");
  bool typed = rest.has_data_type() || tensor.dtype == DType::string;
  bool was_external = rest.data_location() == onnx::TensorProto::EXTERNAL;
  bool same_type = rest.data_type() == static_cast<int32_t>(tensor.dtype);
  rest.set_data_type(static_cast<int32_t>(tensor.dtype));
  rest.clear_dims();
  for (int64_t extent : tensor.dims) rest.add_dims(extent);
  if (typed_entries(rest) > 0) {
    // The rest's own entries are valid only for the data that were read from them.
    auto own = same_type ? try_read_typed(rest, tensor.dtype, tensor.dims) : std::nullopt;
    if (own && same_bytes(*own, tensor)) return;
    clear_typed(rest);
  }
  std::string_view bytes(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
  if (typed)
    write_typed(tensor, rest);
  else if (external && external->takes(was_external, tensor.bytes))
    external->place(rest, tensor);
  else {
    if (was_external) {
      rest.clear_external_data();
      rest.clear_data_location();
    }
    rest.set_raw_data(bytes.data(), bytes.size());
  }
}

Tensor densify(const onnx::SparseTensorProto& sparse, ExternalFiles& files, const std::string& name) {
  constexpr size_t kLimit = size_t{1} << 31;
  onnx::TensorProto values_proto = sparse.values(), indices_proto = sparse.indices();
  Tensor values = take_tensor(values_proto, files, name);
  Tensor indices = aligned(take_tensor(indices_proto, files, name));
  Dims dims = checked_dims(sparse.dims(), name);
  int64_t rank = static_cast<int64_t>(dims.size()), count = values.count();
  bool linear = indices.dims == Dims{count};
  if (values.dims.size() != 1 || indices.dtype != DType::int64 || (!linear && indices.dims != Dims{count, rank}))
    fail("import",
         "sparse tensor '{}': values of shape [n] need int64 indices of shape [n] or [n, rank]; the file is damaged",
         name);
  if (values.dtype == DType::string || bits_of(values.dtype) < 8)
    fail("import", "sparse tensor '{}': elements of type {} are not supported; store it dense", name,
         name_of(values.dtype));
  size_t width = static_cast<size_t>(bits_of(values.dtype)) / 8;
  if (bytes_of(values.dtype, count_of(dims)) > kLimit)
    fail("import", "sparse tensor '{}' would take more than 2 GiB as a dense one, which is how it is used", name);
  Tensor dense = Tensor::zeros(values.dtype, dims);
  auto index = indices.as<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = linear ? index[i] : 0;
    bool inside = !linear || (at >= 0 && at < dense.count());
    for (int64_t d = 0; !linear && d < rank; ++d) {
      int64_t coordinate = index[i * rank + d];
      inside &= coordinate >= 0 && coordinate < dims[d];
      if (inside) at = at * dims[d] + coordinate;
    }
    if (!inside) fail("import", "sparse tensor '{}': entry {} is outside of its extents", name, i);
    std::memcpy(dense.mutable_data() + at * width, values.data + i * width, width);
  }
  return dense;
}

namespace {

template <typename Visit>
void for_each_tensor(google::protobuf::Message& message, const Visit& visit) {
  if (message.GetDescriptor() == onnx::TensorProto::descriptor())
    return visit(static_cast<onnx::TensorProto&>(message));
  const auto* reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      for_each_tensor(*reflection->MutableMessage(&message, field), visit);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i)
      for_each_tensor(*reflection->MutableRepeatedMessage(&message, field, i), visit);
  }
}

}  // namespace

void load_external_within(google::protobuf::Message& message, ExternalFiles& files) {
  for_each_tensor(message, [&](onnx::TensorProto& proto) {
    if (proto.data_location() != onnx::TensorProto::EXTERNAL) return;
    MappedRange range = files.read(external_range(proto, proto.name()), proto.name());
    proto.set_raw_data(range.bytes.data(), range.bytes.size());
  });
}

void store_external_within(google::protobuf::Message& message, ExternalWriter* external) {
  for_each_tensor(message, [&](onnx::TensorProto& proto) {
    if (proto.data_location() != onnx::TensorProto::EXTERNAL) return;
    if (external && external->takes(true, proto.raw_data().size())) {
      Tensor bytes = Tensor::copy_of(DType::uint8, {static_cast<int64_t>(proto.raw_data().size())},
                                     proto.raw_data().data(), proto.raw_data().size());
      proto.clear_raw_data();
      external->place(proto, bytes);
      return;
    }
    proto.clear_external_data();
    proto.clear_data_location();
  });
}

}  // namespace tessera::codec
