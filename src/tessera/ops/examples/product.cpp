#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

using namespace example;

std::vector<Example> matmul_examples(std::string_view) {
  return {
      {"two inputs", {input("4 6"), input("6 5")}},
      {"a weight", {input("4 6"), weight("6 8")}},
      {"symbolic rows", {input("b=3 s=4 6"), weight("6 4")}},
      {"batches", {input("2 3 4 6"), input("2 3 6 2")}},
      {"broadcast batches", {input("3 1 2 4"), input("5 4 2")}},
      {"a vector on the left", {input("6"), input("6 4")}},
      {"a vector on the right", {input("3 4 6"), input("6")}},
      {"two vectors", {input("12"), input("12")}},
      {"nothing to sum", {input("4 0"), input("0 3")}},
      {"no rows", {input("0 4"), weight("4 6")}},
      {"int32", {input("3 4", integers, DType::int32), input("4 6", integers, DType::int32)}},
      {"float64", {input("3 4", integers, DType::float64), input("4 6", integers, DType::float64)}},
      // Sums of products of such numbers are exact in bfloat16's float32 sums, but not always when they are rounded.
      {"bfloat16", {input("4 6", small, DType::bfloat16), weight("6 4", small, DType::bfloat16)}},
  };
}

std::vector<Example> wide_matmul_examples(std::string_view) {
  return {{"float32 sums of bfloat16",
           {input("4 6", integers, DType::bfloat16), input("6 4", integers, DType::bfloat16)},
           {{"accumulate", std::string("float32")}}}};
}

std::vector<Example> gemm_examples(std::string_view) {
  return {
      {"without C", {input("4 6"), weight("6 3")}},
      {"a row of C", {input("4 6"), weight("6 8"), weight("8")}},
      {"transposed", {input("6 4"), weight("5 6"), weight("4 5")}, {{"transA", int64_t{1}}, {"transB", int64_t{1}}}},
      {"a column of C, scaled", {input("4 6"), weight("6 3"), weight("4 1")}, {{"alpha", 2.0F}, {"beta", 3.0F}}},
      {"nothing to sum", {input("4 0"), weight("0 3"), weight("3")}},
  };
}

std::vector<Example> wide_gemm_examples(std::string_view) {
  std::vector<Example> all;
  for (const std::string c : {"", "4", "5 1"}) {
    all.push_back({"float32 sums of bfloat16, C of [" + c + "]",
                   {input("5 6", integers, DType::bfloat16), weight("4 6", integers, DType::bfloat16)},
                   {{"accumulate", std::string("float32")}, {"transB", int64_t{1}}}});
    if (!c.empty()) all.back().operands.push_back(weight(c, integers, DType::bfloat16));
  }
  return all;
}

std::vector<Example> einsum_examples(std::string_view) {
  const auto einsum = [](std::string equation, std::vector<ExampleOperand> operands) {
    return Example{equation, std::move(operands), {{"equation", equation}}};
  };
  return {
      einsum("ij,jk->ik", {input("4 6"), input("6 3")}),
      einsum("bhid,bhjd->bhij", {input("2 3 4 2"), input("2 3 5 2")}),
      einsum("...ij,...jk->...ik", {input("2 3 4"), input("4 2")}),
      einsum("ii->i", {input("4 4")}),
      einsum("ij->ji", {input("4 6")}),
      einsum("i,j", {input("4"), input("3")}),
      einsum("ij->", {input("4 6")}),
      einsum("ij,jk,kl->il", {input("2 3"), input("3 4"), input("4 2")}),
  };
}

}  // namespace tessera::ops
