#include "tessera/ir/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/pages.h"

namespace tessera {
inline namespace v1 {

int64_t count_of(std::span<const int64_t> dims) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;  // the others' product may overflow
  if (auto count = count_if_fits(dims)) return *count;
  fail("memory", "a tensor of [{}] has more elements than any memory holds; give smaller sizes", fmt::join(dims, ", "));
}

void require_countable(DType dtype, std::span<const int64_t> dims, std::string_view name) {
  const auto most = count_if_fits(dims, 1);
  const size_t bits = static_cast<size_t>(bits_of(dtype));
  if (most && (bits == 0 || static_cast<size_t>(*most) <= kMostBytes / bits * 8)) return;
  fail("memory", "'{}' is {} of [{}], which is more than any memory holds; give smaller sizes", name, name_of(dtype),
       fmt::join(dims, ", "));
}

namespace {

Tensor allocated(DType dtype, Dims dims, Pages allocate(size_t, const char*)) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.bytes = bytes_of(dtype, count_of(dims));
  tensor.dims = std::move(dims);
  std::shared_ptr<std::byte[]> memory = allocate(tensor.bytes, "a tensor");
  tensor.data = tensor.writable = memory.get();
  tensor.owner = std::move(memory);
  return tensor;
}

void require_bytes(const Tensor& tensor, size_t given) {
  if (given != tensor.bytes)
    fail("tensor", "a tensor of {} [{}] has {} bytes, but {} were given", name_of(tensor.dtype),
         fmt::join(tensor.dims, ", "), tensor.bytes, given);
}

// Several elements lie in a byte, the first in the lowest bits.
std::vector<int64_t> unpacked(const Tensor& tensor) {
  const int bits = bits_of(tensor.dtype), per_byte = 8 / bits;
  const bool has_sign = tensor.dtype == DType::int4 || tensor.dtype == DType::int2;
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const int byte = tensor.as<uint8_t>()[static_cast<size_t>(i / per_byte)];
    const int code = byte >> (bits * static_cast<int>(i % per_byte)) & ((1 << bits) - 1);
    elements.push_back(has_sign && code >> (bits - 1) ? code - (1 << bits) : code);
  }
  return elements;
}

}  // namespace

Tensor Tensor::uninitialized(DType dtype, Dims dims) {
  return allocated(dtype, std::move(dims), allocate_pages);
}

Tensor Tensor::zeros(DType dtype, Dims dims) {
  return allocated(dtype, std::move(dims), allocate_zeros);
}

Tensor Tensor::copy_of(DType dtype, Dims dims, const void* source, size_t bytes) {
  Tensor tensor = uninitialized(dtype, std::move(dims));
  require_bytes(tensor, bytes);
  if (bytes) std::memcpy(tensor.mutable_data(), source, bytes);
  return tensor;
}

Tensor Tensor::borrow(DType dtype, Dims dims, const void* data, size_t bytes, std::shared_ptr<const void> owner) {
  Tensor tensor{dtype, std::move(dims), std::move(owner), static_cast<const std::byte*>(data), bytes};
  tensor.require_whole("");
  if (!is_aligned(tensor))
    fail("tensor", "a tensor of {} begins at an address that is not a multiple of its element size; copy the elements",
         name_of(tensor.dtype));
  return tensor;
}

Tensor Tensor::borrow_mutable(DType dtype, Dims dims, void* data, size_t bytes, std::shared_ptr<const void> owner) {
  Tensor tensor = borrow(dtype, std::move(dims), data, bytes, std::move(owner));
  tensor.writable = static_cast<std::byte*>(data);
  return tensor;
}

void Tensor::refuse_to_write() const {
  fail("tensor", "a tensor of {} [{}] is read only; copy it, or borrow memory that may be written by borrow_mutable()",
       name_of(dtype), fmt::join(dims, ", "));
}

void Tensor::require_whole(std::string_view name) const {
  const std::string called = name.empty() ? "a tensor" : fmt::format("'{}'", name);
  if (std::any_of(dims.begin(), dims.end(), [](int64_t extent) { return extent < 0; }))
    fail("tensor", "{} has the dimensions [{}], which must be 0 or more", called, fmt::join(dims, ", "));
  if (dtype == DType::undefined || dtype == DType::string) return;
  const size_t needed = bytes_of(dtype, count_of(dims));
  if (bytes != needed || (needed > 0 && !data))
    fail("tensor", "{} is {} [{}], which takes {} bytes, but it has {}; give data that fit its dimensions", called,
         name_of(dtype), fmt::join(dims, ", "), needed, data ? bytes : 0);
}

void Tensor::require_elements(DType wanted) const {
  if (dtype == wanted || (dtype == DType::boolean && wanted == DType::uint8)) return;
  fail("tensor", "a tensor of {} is read as {}; read it by its own type", name_of(dtype), name_of(wanted));
}

namespace {
template <typename T>
std::vector<int64_t> widen(const Tensor& tensor) {
  auto values = tensor.as<T>();
  return {values.begin(), values.end()};
}
}  // namespace

std::vector<int64_t> Tensor::to_int64() const {
  switch (dtype) {
    case DType::int64:
      return widen<int64_t>(*this);
    case DType::int32:
      return widen<int32_t>(*this);
    case DType::int16:
      return widen<int16_t>(*this);
    case DType::int8:
      return widen<int8_t>(*this);
    case DType::uint64:
      return widen<uint64_t>(*this);
    case DType::uint32:
      return widen<uint32_t>(*this);
    case DType::uint16:
      return widen<uint16_t>(*this);
    case DType::uint8:
    case DType::boolean:
      return widen<uint8_t>(*this);
    case DType::int4:
    case DType::uint4:
    case DType::int2:
    case DType::uint2:
      return unpacked(*this);
    default:
      fail("tensor", "a tensor of {} where integers are needed", name_of(dtype));
  }
}

bool is_quantized_weight(const Tensor& data) {
  constexpr int64_t kLongestContent = 64;
  constexpr std::array<DType, 4> kCodes = {DType::uint8, DType::int8, DType::uint4, DType::int4};
  const bool has_codes = std::find(kCodes.begin(), kCodes.end(), data.dtype) != kCodes.end();
  return has_codes && data.dims.size() >= 2 && data.count() > kLongestContent;
}

}  // namespace v1
}  // namespace tessera
