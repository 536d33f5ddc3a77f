#include "tessera/onnx/strings.h"

#include <cstring>

#include "tessera/base/error.h"

namespace tessera {

Tensor string_tensor(Dims dims, const std::vector<std::string>& elements) {
  check(static_cast<int64_t>(elements.size()) == count_of(dims), "a string tensor has as many elements as its extents");
  std::vector<uint64_t> offsets{0};
  std::string characters;
  for (const std::string& element : elements) {
    characters += element;
    offsets.push_back(characters.size());
  }
  size_t table = offsets.size() * sizeof(uint64_t);
  Tensor bytes = Tensor::zeros(DType::uint8, {static_cast<int64_t>(table + characters.size())});
  std::memcpy(bytes.mutable_data(), offsets.data(), table);
  std::memcpy(bytes.mutable_data() + table, characters.data(), characters.size());
  bytes.dtype = DType::string;
  bytes.dims = std::move(dims);
  return bytes;
}

std::vector<std::string> strings_of(const Tensor& tensor) {
  check(tensor.dtype == DType::string, "strings are read from a string tensor");
  size_t count = static_cast<size_t>(tensor.count());
  size_t table = (count + 1) * sizeof(uint64_t);
  check(tensor.bytes >= table, "a string tensor has its offsets");
  const char* characters = reinterpret_cast<const char*>(tensor.data) + table;
  std::vector<std::string> elements;
  elements.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bounds[2];
    std::memcpy(bounds, tensor.data + i * sizeof(uint64_t), sizeof bounds);
    check(bounds[0] <= bounds[1] && bounds[1] <= tensor.bytes - table, "the offsets of a string tensor are in order");
    elements.emplace_back(characters + bounds[0], characters + bounds[1]);
  }
  return elements;
}

}  // namespace tessera
