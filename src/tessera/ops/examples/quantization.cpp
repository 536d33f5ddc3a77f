#include "tessera/ops/examples/examples.h"

namespace tessera::ops {
namespace {

using namespace example;

ExampleOperand zero_points(DType dtype, Dims dims, const std::vector<uint8_t>& elements) {
  return constant(Tensor::of(dtype, std::move(dims), elements));
}

Attribute block_size(int64_t size) {
  return {"block_size", size};
}

Attribute output_type(DType dtype) {
  return {"output_dtype", static_cast<int64_t>(dtype)};
}

}  // namespace

std::vector<Example> quantize_examples(std::string_view) {
  std::vector<Example> all;
  for (const DType dtype : {DType::uint8, DType::int8}) {
    const std::string name(name_of(dtype));
    all.push_back({"one scale, " + name, {input("4 6", reals), number(0.25F), zero_points(dtype, {}, {3})}});
    all.push_back({"a scale per column, " + name,
                   {input("4 3", reals), weight("3", positive), zero_points(dtype, {3}, {1, 2, 3})},
                   {axis(1)}});
    all.push_back({"blocks, the last one smaller, " + name,
                   {input("4 5", reals), weight("4 3", positive)},
                   {axis(1), block_size(2), output_type(dtype)}});
  }
  // Codes of 4 bits, rows of which fill whole bytes.
  const Attribute to_int4 = output_type(DType::int4);
  all.push_back({"a scale per row, int4", {input("4 6", reals), weight("4", positive)}, {axis(0), to_int4}});
  all.push_back({"a scale per column, int4", {input("4 6", reals), weight("6", positive)}, {axis(1), to_int4}});
  return all;
}

std::vector<Example> dequantize_examples(std::string_view) {
  std::vector<Example> all;
  for (const DType dtype : {DType::uint8, DType::int8}) {
    const std::string name(name_of(dtype));
    const ExampleOperand codes = input("4 6", small, dtype);
    all.push_back(
        {"a scale per row, " + name, {codes, weight("4", positive), zero_points(dtype, {4}, {1, 2, 3, 0})}, {axis(0)}});
    all.push_back({"one scale, no zero point, " + name, {codes, number(0.5F)}});
    all.push_back({"a scale per block, " + name, {codes, weight("2 6", positive)}, {axis(0), block_size(2)}});
  }
  Tensor codes = Tensor::zeros(DType::int4, {4, 6});
  for (size_t i = 0; i < codes.bytes; ++i) codes.mutable_data()[i] = static_cast<std::byte>(37 * i + 11);
  all.push_back({"a scale per row, int4", {constant(codes), weight("4", positive)}, {axis(0)}});
  return all;
}

std::vector<Example> dynamic_quantize_examples(std::string_view) {
  std::vector<Example> all;
  for (const DType dtype : {DType::float32, DType::float16, DType::float64})
    for (const auto& [name, extents] : std::initializer_list<std::pair<const char*, const char*>>{
             {"5", "5"}, {"4 6", "4 6"}, {"b 3 2", "b=5 3 2"}, {"2 1 7", "2 1 7"}, {"", ""}})
      all.push_back({std::string(name_of(dtype)) + " [" + name + "]", {input(extents, reals, dtype)}, {}, none, 3});
  for (const size_t results : {1, 2})
    all.push_back({std::to_string(results) + " of its results", {input("4 6", reals)}, {}, none, results});
  return all;
}

}  // namespace tessera::ops
