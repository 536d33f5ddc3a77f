#include "tessera/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/mapped_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using HeaderJson = nlohmann::ordered_json;

constexpr size_t kLengthBytes = sizeof(uint64_t), kHeaderAlignment = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // the format's limit
constexpr std::string_view kMetadata = "__metadata__";

constexpr std::pair<std::string_view, DType> kSafetensorsTypes[] = {
    {"BOOL", DType::boolean},         {"U8", DType::uint8},  {"I8", DType::int8},    {"F8_E5M2", DType::float8e5m2},
    {"F8_E4M3", DType::float8e4m3fn}, {"I16", DType::int16}, {"U16", DType::uint16}, {"F16", DType::float16},
    {"BF16", DType::bfloat16},        {"I32", DType::int32}, {"U32", DType::uint32}, {"F32", DType::float32},
    {"F64", DType::float64},          {"I64", DType::int64}, {"U64", DType::uint64}, {"F8_E8M0", DType::float8e8m0}};

DType safetensors_type(const std::string& name) {
  for (const auto& [known, dtype] : kSafetensorsTypes)
    if (known == name) return dtype;
  return DType::undefined;
}

std::optional<std::string_view> safetensors_name(DType dtype) {
  for (const auto& [name, known] : kSafetensorsTypes)
    if (known == dtype) return name;
  return std::nullopt;
}

/// The bytes [begin, end) of the data that tensors have taken.
struct Extent {
  uint64_t begin = 0, end = 0;
  std::string name;
};

Tensor tensor_in(const HeaderJson& entry, std::shared_ptr<const MappedFile> file, size_t data, const std::string& what,
                 Extent& extent) {
  const auto type = entry.at("dtype").get<std::string>();
  const DType dtype = safetensors_type(type);
  if (dtype == DType::undefined) fail("safetensors", "{}: has the type '{}', which ONNX lacks", what, type);
  Tensor tensor{dtype, entry.at("shape").get<Dims>()};
  for (int64_t dim : tensor.dims)
    if (dim < 0) fail("safetensors", "{}: has an extent of {}", what, dim);
  require_countable(dtype, tensor.dims, what);
  tensor.bytes = bytes_of(dtype, tensor.count());
  const auto offsets = entry.at("data_offsets").get<std::array<uint64_t, 2>>();
  extent.begin = offsets[0];
  extent.end = offsets[1];
  const uint64_t present = file->size() - data;
  if (extent.begin > extent.end || extent.end > present)
    fail("safetensors", "{}: is stored at bytes {} to {} of {}; the file is truncated", what, extent.begin, extent.end,
         present);
  if (extent.end - extent.begin != tensor.bytes)
    fail("safetensors", "{}: has {} bytes, but its type and shape need {}", what, extent.end - extent.begin,
         tensor.bytes);
  tensor.data = file->data() + data + extent.begin;
  tensor.owner = std::move(file);
  return tensor;
}

}  // namespace

Safetensors read_safetensors(const fs::path& path) {
  const auto file = MappedFile::open(path, "safetensors");
  uint64_t length = 0;
  if (file->size() >= kLengthBytes) std::memcpy(&length, file->data(), kLengthBytes);
  if (file->size() < kLengthBytes || length > kLongestHeader || length > file->size() - kLengthBytes)
    fail("safetensors", "{}: is not a .safetensors file, or is truncated", path.string());
  const size_t data = kLengthBytes + length;
  Safetensors read;
  std::vector<Extent> extents;
  std::string what = path.string();
  try {
    const HeaderJson header = HeaderJson::parse(file->view().substr(kLengthBytes, length));
    if (!header.is_object()) fail("safetensors", "{}: its header is not a JSON object", path.string());
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) {
        read.metadata = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      what = fmt::format("{}: '{}'", path.string(), name);
      Extent& extent = extents.emplace_back();
      extent.name = name;
      read.tensors.emplace(name, tensor_in(entry, file, data, what, extent));
    }
  } catch (const nlohmann::json::exception& error) {
    fail("safetensors", "{}: its header is not a header of a .safetensors file: {}", what, error.what());
  }
  // The format demands that tensors fill the data without holes or overlaps, so that no byte goes unread.
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != end)
      fail("safetensors", "{}: '{}': begins at byte {} of the data, but the tensors before it end at {}", path.string(),
           extent.name, extent.begin, end);
    end = extent.end;
  }
  if (end != file->size() - data)
    fail("safetensors", "{}: {} bytes follow the last tensor", path.string(), file->size() - data - end);
  return read;
}

void save_safetensors(const fs::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<const std::pair<std::string, Tensor>*> sorted;
  for (const auto& entry : tensors) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return std::pair(-bits_of(a->second.dtype), std::string_view(a->first)) <
           std::pair(-bits_of(b->second.dtype), std::string_view(b->first));
  });
  HeaderJson header = HeaderJson::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  uint64_t at = 0;
  for (const auto* entry : sorted) {
    const auto& [name, tensor] = *entry;
    const auto type = safetensors_name(tensor.dtype);
    if (!type)
      fail("safetensors", "{}: '{}': .safetensors files have no type for {}", path.string(), name,
           name_of(tensor.dtype));
    if (name == kMetadata || header.contains(name))
      fail("safetensors", "{}: '{}': occurs twice, or is a reserved name; rename it", path.string(), name);
    header[name] = {{"dtype", *type}, {"shape", tensor.dims}, {"data_offsets", {at, at + tensor.bytes}}};
    at += tensor.bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail("safetensors", "{}: a name is not UTF-8 text; rename the tensor", path.string());
  }
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  if (text.size() > kLongestHeader)
    fail("safetensors", "{}: the names of {} tensors are longer than the format allows", path.string(), tensors.size());
  AtomicFile file(path);
  const uint64_t length = text.size();
  file.write(&length, sizeof length);
  file.write(text);
  for (const auto* entry : sorted) file.write(entry->second.data, entry->second.bytes);
  file.commit();
}

}  // namespace tessera
