#include <fmt/format.h>

#include "property/cases.h"

namespace tessera::property {

using Operands = std::vector<Value*>;

namespace {

void add_quantization(CaseList& list) {
  const auto zero = [](Builder& b, std::vector<int64_t> elements, Dims dims, DType dtype) {
    Tensor tensor = Tensor::zeros(dtype, std::move(dims));
    for (size_t i = 0; i < elements.size(); ++i) tensor.mutable_data()[i] = static_cast<std::byte>(elements[i]);
    return b.constant(tensor);
  };
  const auto scales = [](Builder& b, Dims dims, std::vector<float> elements) {
    return b.constant(Tensor::of(DType::float32, std::move(dims), elements));
  };
  for (DType dtype : {DType::uint8, DType::int8}) {
    const std::string name(name_of(dtype));
    list.add("QuantizeLinear", "one scale, " + name, [&](Builder& b) -> Operands {
      return {b.input("4 6", Fill::reals), scales(b, {}, {0.25}), zero(b, {3}, {}, dtype)};
    });
    list.add("QuantizeLinear", "a scale per column, " + name,
             [&](Builder& b) -> Operands {
               return {b.input("4 3", Fill::reals), b.weight("3", Fill::positive), zero(b, {1, 2, 3}, {3}, dtype)};
             },
             {axis(1)});
    list.add(
        "DequantizeLinear", "a scale per row, " + name,
        [&](Builder& b) -> Operands {
          return {b.input("4 6", Fill::small, dtype), b.weight("4", Fill::positive), zero(b, {1, 2, 3, 0}, {4}, dtype)};
        },
        {axis(0)});
    list.add("DequantizeLinear", "one scale, no zero point, " + name, [&](Builder& b) -> Operands {
      return {b.input("4 6", Fill::small, dtype), scales(b, {}, {0.5})};
    });
    list.add("DequantizeLinear", "a scale per block, " + name,
             [&](Builder& b) -> Operands {
               return {b.input("4 6", Fill::small, dtype), b.weight("2 6", Fill::positive)};
             },
             {axis(0), {"block_size", int64_t{2}}});
    list.add("QuantizeLinear", "blocks, the last one smaller, " + name,
             [&](Builder& b) -> Operands {
               return {b.input("4 5", Fill::reals), b.weight("4 3", Fill::positive)};
             },
             {axis(1), {"block_size", int64_t{2}}, {"output_dtype", static_cast<int64_t>(dtype)}});
  }
}

// Codes of 4 bits, rows of which fill whole bytes.
void add_narrow_quantization(CaseList& list) {
  const Attribute to_int4{"output_dtype", static_cast<int64_t>(DType::int4)};
  const auto codes = [](Builder& b) {
    Tensor tensor = Tensor::zeros(DType::int4, {4, 6});
    for (size_t i = 0; i < tensor.bytes; ++i) tensor.mutable_data()[i] = static_cast<std::byte>(37 * i + 11);
    return b.constant(tensor);
  };
  list.add("QuantizeLinear", "a scale per row, int4",
           [](Builder& b) -> Operands {
             return {b.input("4 6", Fill::reals), b.weight("4", Fill::positive)};
           },
           {axis(0), to_int4});
  list.add("QuantizeLinear", "a scale per column, int4",
           [](Builder& b) -> Operands {
             return {b.input("4 6", Fill::reals), b.weight("6", Fill::positive)};
           },
           {axis(1), to_int4});
  list.add("DequantizeLinear", "a scale per row, int4",
           [&](Builder& b) -> Operands {
             return {codes(b), b.weight("4", Fill::positive)};
           },
           {axis(0)});
}

void add_dynamic_quantization(CaseList& list) {
  for (const DType dtype : {DType::float32, DType::float16, DType::float64})
    for (const char* shape : {"5", "4 6", "b 3 2", "2 1 7", ""})
      list.add(
          "DynamicQuantizeLinear", fmt::format("{} [{}]", name_of(dtype), shape),
          [&](Builder& b) -> Operands { return {b.bind("b", 5).input(shape, Fill::reals, dtype)}; }, {}, kExact, 3);
  for (const size_t results : {1, 2})
    list.add(
        "DynamicQuantizeLinear", fmt::format("{} of its results", results),
        [](Builder& b) -> Operands { return {b.input("4 6", Fill::reals)}; }, {}, kExact, results);
}

}  // namespace

std::vector<Subject> quantization_cases() {
  CaseList list;
  add_quantization(list);
  add_narrow_quantization(list);
  add_dynamic_quantization(list);
  return list.take();
}

}  // namespace tessera::property
