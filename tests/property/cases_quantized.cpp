#include <fmt/format.h>

#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;

void add_integer_products(CaseList& list) {
  for (const DType left : {DType::uint8, DType::int8})
    for (const DType right : {DType::uint8, DType::int8}) {
      const std::string types = fmt::format("{} by {}", name_of(left), name_of(right));
      list.add("MatMulInteger", types, [=](Builder& b) -> Operands {
        return {b.input("3 4 6", Fill::small, left), b.weight("6 6", Fill::small, right),
                b.input("", Fill::small, left), b.input("", Fill::small, right)};
      });
      list.add("MatMulInteger", types + ", a zero point for each row and column", [=](Builder& b) -> Operands {
        return {b.input("4 6", Fill::small, left), b.weight("6 5", Fill::small, right), b.input("4", Fill::small, left),
                b.weight("5", Fill::small, right)};
      });
    }
  list.add("MatMulInteger", "a batch of both", [](Builder& b) -> Operands {
    b.bind("b", 3);
    return {b.input("b 2 4", Fill::small, DType::uint8), b.input("b 4 3", Fill::small, DType::int8)};
  });
}

void add_block_products(CaseList& list) {
  for (const int64_t bits : {4, 8}) {
    const auto codes = [=](int64_t n, int64_t blocks) { return fmt::format("{} {} {}", n, blocks, 16 * bits / 8); };
    const std::vector<Attribute> attributes = {{"bits", bits}, {"block_size", int64_t{16}}};
    const std::string name = fmt::format("{} bits", bits);
    list.add(
        "MatMulNBits", name,
        [=](Builder& b) -> Operands {
          b.bind("b", 3);
          return {b.input("b 2 48"), b.weight(codes(6, 3), Fill::small, DType::uint8), b.weight("6 3", Fill::positive)};
        },
        attributes, kExact, 1, "com.microsoft");
    list.add(
        "MatMulNBits", name + ", zero points",
        [=](Builder& b) -> Operands {
          return {b.input("3 64"), b.weight(codes(5, 4), Fill::small, DType::uint8), b.weight("5 4", Fill::positive),
                  b.weight(bits == 4 ? "5 2" : "5 4", Fill::small, DType::uint8)};
        },
        attributes, kExact, 1, "com.microsoft");
    list.add(
        "MatMulNBits", name + ", a short last block, zero points as floats",
        [=](Builder& b) -> Operands {
          return {b.input("3 40"), b.weight(codes(4, 3), Fill::small, DType::uint8), b.weight("4 3", Fill::positive),
                  b.weight("4 3", Fill::small)};
        },
        attributes, kExact, 1, "com.microsoft");
  }
  for (const DType type : {DType::uint8, DType::int8})
    list.add(
        "MatMulBlocks", std::string(name_of(type)),
        [=](Builder& b) -> Operands {
          return {b.input("2 3 64"), b.weight("64 6", Fill::small, type), b.weight("4 6", Fill::positive),
                  b.weight("4 6", Fill::small, type)};
        },
        {{"block_size", int64_t{16}}}, kExact, 1, "tessera");
  list.add(
      "MatMulBlocks", "a turned matrix",
      [](Builder& b) -> Operands {
        return {b.input("2 3 64"), b.weight("6 64", Fill::small, DType::int8), b.weight("6 4", Fill::positive)};
      },
      {{"block_size", int64_t{16}}, {"transB", int64_t{1}}}, kExact, 1, "tessera");
  for (const int64_t turned : {0, 1}) {
    const auto codes = [=](std::string rows, std::string columns) {
      return turned == 1 ? columns + " " + rows : rows + " " + columns;
    };
    const std::string name = fmt::format("without blocks{}", turned == 1 ? ", turned" : "");
    list.add(
        "MatMulBlocks", name + ", a scale for each column",
        [=](Builder& b) -> Operands {
          return {b.input("2 3 9"), b.weight(codes("9", "6"), Fill::small, DType::uint8), b.weight("6", Fill::positive),
                  b.weight("6", Fill::small, DType::uint8)};
        },
        {{"transB", turned}}, kExact, 1, "tessera");
    list.add(
        "MatMulBlocks", name + ", one scale",
        [=](Builder& b) -> Operands {
          return {b.input("5 9"), b.weight(codes("9", "6"), Fill::small, DType::int8), b.weight("", Fill::positive)};
        },
        {{"transB", turned}}, kExact, 1, "tessera");
  }
}

void add_integer_convolutions(CaseList& list) {
  using Ints = std::vector<int64_t>;
  const auto convolution = [&](std::string_view what, std::string_view data, std::string_view weight,
                               std::string_view zeros, std::vector<Attribute> attributes) {
    for (const DType left : {DType::uint8, DType::int8})
      list.add(
          "ConvInteger", fmt::format("{}, of {}", what, name_of(left)),
          [=](Builder& b) -> Operands {
            b.bind("s", 7);
            return {b.input(data, Fill::small, left), b.weight(weight, Fill::small, DType::int8),
                    b.input("", Fill::small, left), b.weight(zeros, Fill::small, DType::int8)};
          },
          attributes);
  };
  convolution("padded", "2 3 6 5", "4 3 3 3", "", {{"pads", Ints{1, 1, 1, 1}}});
  convolution("windows wider than shards", "1 2 9", "2 2 7", "2", {{"pads", Ints{3, 3}}});
  convolution("dilated and strided, in groups", "1 4 13 8", "6 2 3 2", "6",
              {{"group", int64_t{2}}, {"strides", Ints{3, 1}}, {"dilations", Ints{2, 3}}, {"pads", Ints{2, 1, 1, 2}}});
  convolution("each channel alone", "1 6 7 5", "6 1 3 3", "6", {{"group", int64_t{6}}, {"pads", Ints{1, 1, 1, 1}}});
  convolution("a symbolic length", "1 2 s", "3 2 3", "1", {{"pads", Ints{1, 1}}});
  list.add("ConvInteger", "a zero point in a list of one, and none of the weight",
           [](Builder& b) -> Operands {
             return {b.input("2 2 6", Fill::small, DType::uint8), b.weight("3 2 3", Fill::small, DType::uint8),
                     b.input("1", Fill::small, DType::uint8)};
           },
           {{"pads", Ints{1, 1}}});
}

}  // namespace

std::vector<Subject> quantized_cases() {
  CaseList list;
  add_integer_products(list);
  add_block_products(list);
  add_integer_convolutions(list);
  return list.take();
}

}  // namespace tessera::property
