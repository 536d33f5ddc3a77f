#include "tessera/rewrite/literal.h"

#include <cstring>

#include "tessera/ops/library/infer.h"

namespace tessera::rewrite {

std::optional<Tensor> literal(const Node& node) {
  if (const auto* tensor = node.get<Tensor>("value")) return *tensor;
  if (const auto* number = node.get<int64_t>("value_int")) return Tensor::of<int64_t>(DType::int64, {}, {*number});
  if (const auto* number = node.get<float>("value_float")) return Tensor::of<float>(DType::float32, {}, {*number});
  if (const auto* list = node.get<std::vector<int64_t>>("value_ints"))
    return Tensor::of(DType::int64, {static_cast<int64_t>(list->size())}, *list);
  if (const auto* list = node.get<std::vector<float>>("value_floats"))
    return Tensor::of(DType::float32, {static_cast<int64_t>(list->size())}, *list);
  return std::nullopt;
}

namespace {

bool has_three_numbers(const Tensor& data) {
  const size_t element = static_cast<size_t>(bits_of(data.dtype)) / 8;
  const std::byte* first = data.data;
  const std::byte* second = nullptr;
  auto same = [&](const std::byte* a, const std::byte* b) { return std::memcmp(a, b, element) == 0; };
  for (size_t at = element; at + element <= data.bytes; at += element) {
    const std::byte* next = data.data + at;
    if (same(next, first) || (second && same(next, second))) continue;
    if (second) return true;
    second = next;
  }
  return false;
}

}  // namespace

bool is_weight(const Tensor& data) {
  if (is_quantized_weight(data)) return true;
  return is_float(data.dtype) && bits_of(data.dtype) % 8 == 0 && data.count() > ops::kMaxContent &&
         (data.dims.size() < 2 || has_three_numbers(data));
}

}  // namespace tessera::rewrite
