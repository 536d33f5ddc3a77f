#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

using namespace example;

std::vector<Example> tensor_scatter_examples(std::string_view) {
  return {
      {"a cache of heads", {input("4 6 5 3"), input("4 6 2 3"), ints({0, 3, 1, 2})}},
      {"around the end",
       {input("2 4 6", special), input("2 3 6", special), ints({3, 1})},
       {axis(1), {"mode", std::string("circular")}}},
      {"from the start, in the last dimension", {input("b=3 4 5"), input("b=3 4 2")}, {axis(-1)}},
      {"in symbolic rows", {input("2 2 t=7 3"), input("2 2 u=2 3"), ints({5, 1})}},
  };
}

// Parts of caches, which begin at a row of their own.
std::vector<Example> tensor_scatter_shard_examples(std::string_view) {
  const Attribute circular{"mode", std::string("circular")};
  const auto part = [](const char* what, std::vector<ExampleOperand> operands, int64_t offset, int64_t rows,
                       std::vector<Attribute> attributes = {}) {
    operands.push_back(integer(offset));
    operands.push_back(integer(rows));
    return Example{what, std::move(operands), std::move(attributes)};
  };
  return {
      part("some rows here, some before, some behind", {input("4 2 3 5"), input("4 2 2 5"), ints({0, 2, 3, 7})}, 3, 9),
      part("from the start", {input("2 3 4"), input("2 5 4"), left_out()}, 2, 6),
      part("around the end", {input("3 4 2", special), input("3 4 5", special), ints({7, 11, 2})}, 0, 8,
           {axis(-1), circular}),
      part("over its own rows", {input("2 2 3"), input("2 9 3"), ints({1, 6})}, 2, 4, {circular}),
  };
}

}  // namespace tessera::ops
