#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

using namespace example;

std::vector<Example> matmul_integer_examples(std::string_view) {
  std::vector<Example> all;
  for (const DType left : {DType::uint8, DType::int8})
    for (const DType right : {DType::uint8, DType::int8}) {
      const std::string types = std::string(name_of(left)) + " by " + std::string(name_of(right));
      all.push_back({types,
                     {input("3 4 6", small, left), weight("6 6", small, right), input("", small, left),
                      input("", small, right)}});
      all.push_back({types + ", a zero point for each row and column",
                     {input("4 6", small, left), weight("6 5", small, right), input("4", small, left),
                      weight("5", small, right)}});
    }
  all.push_back({"a batch of both", {input("b=3 2 4", small, DType::uint8), input("b=3 4 3", small, DType::int8)}});
  return all;
}

std::vector<Example> matmul_nbits_examples(std::string_view) {
  std::vector<Example> all;
  for (const int64_t bits : {4, 8}) {
    const std::vector<Attribute> attributes = {{"bits", bits}, {"block_size", int64_t{16}}};
    const std::string name = std::to_string(bits) + " bits";
    const auto codes = [&](std::string blocks) {  // by columns: "columns blocks"
      return weight(blocks + " " + std::to_string(16 * bits / 8), small, DType::uint8);
    };
    all.push_back({name, {input("b=3 2 48"), codes("6 3"), weight("6 3", positive)}, attributes});
    all.push_back(
        {name + ", zero points",
         {input("3 64"), codes("5 4"), weight("5 4", positive), weight(bits == 4 ? "5 2" : "5 4", small, DType::uint8)},
         attributes});
    all.push_back({name + ", a short last block, zero points as floats",
                   {input("3 40"), codes("4 3"), weight("4 3", positive), weight("4 3", small)},
                   attributes});
  }
  return all;
}

std::vector<Example> matmul_blocks_examples(std::string_view) {
  const Attribute blocks{"block_size", int64_t{16}};
  const auto turned = [](int64_t is) { return Attribute{"transB", is}; };
  const ExampleOperand rows = input("2 3 64");
  std::vector<Example> all;
  for (const DType dtype : {DType::uint8, DType::int8})
    all.push_back({std::string(name_of(dtype)),
                   {rows, weight("64 6", small, dtype), weight("4 6", positive), weight("4 6", small, dtype)},
                   {blocks}});
  all.push_back(
      {"a turned matrix", {rows, weight("6 64", small, DType::int8), weight("6 4", positive)}, {blocks, turned(1)}});
  for (const int64_t is_turned : {0, 1}) {
    const std::string codes = is_turned ? "6 9" : "9 6";
    const std::string name = is_turned ? "without blocks, turned" : "without blocks";
    all.push_back(
        {name + ", a scale for each column",
         {input("2 3 9"), weight(codes, small, DType::uint8), weight("6", positive), weight("6", small, DType::uint8)},
         {turned(is_turned)}});
    all.push_back({name + ", one scale",
                   {input("5 9"), weight(codes, small, DType::int8), weight("", positive)},
                   {turned(is_turned)}});
  }
  return all;
}

}  // namespace tessera::ops
