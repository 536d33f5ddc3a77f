#include <fmt/format.h>

#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;
using Ints = std::vector<int64_t>;

void add_matmuls(CaseList& list) {
  auto product = [&](std::string_view what, std::string_view a, std::string_view b, bool weight = false,
                     DType dtype = DType::float32) {
    list.add("MatMul", what, [=](Builder& builder) -> Operands {
      builder.bind("b", 3).bind("s", 4);
      return {builder.input(a, Fill::integers, dtype),
              weight ? builder.weight(b, Fill::integers, dtype) : builder.input(b, Fill::integers, dtype)};
    });
  };
  product("two inputs", "4 6", "6 5");
  product("a weight", "4 6", "6 8", true);
  product("symbolic rows", "b s 6", "6 4", true);
  product("batches", "2 3 4 6", "2 3 6 2");
  product("broadcast batches", "3 1 2 4", "5 4 2");
  product("a vector on the left", "6", "6 4");
  product("a vector on the right", "3 4 6", "6");
  product("two vectors", "12", "12");
  product("nothing to sum", "4 0", "0 3");
  product("no rows", "0 4", "4 6", true);
  product("int32", "3 4", "4 6", false, DType::int32);
  product("float64", "3 4", "4 6", false, DType::float64);
  // Sums of products of such numbers are exact in bfloat16's float32 sums, but not always when they are rounded.
  list.add("MatMul", "bfloat16", [](Builder& b) -> Operands {
    return {b.input("4 6", Fill::small, DType::bfloat16), b.weight("6 4", Fill::small, DType::bfloat16)};
  });
  list.add(
      "MatMul", "float32 sums of bfloat16",
      [](Builder& b) -> Operands {
        return {b.input("4 6", Fill::integers, DType::bfloat16), b.input("6 4", Fill::integers, DType::bfloat16)};
      },
      {{"accumulate", std::string("float32")}}, kExact, 1, "tessera");

  for (const char* c : {"", "4", "5 1"})
    list.add(
        "Gemm", fmt::format("float32 sums of bfloat16, C of [{}]", c),
        [c](Builder& b) -> Operands {
          Operands operands{b.input("5 6", Fill::integers, DType::bfloat16),
                            b.weight("4 6", Fill::integers, DType::bfloat16)};
          if (*c) operands.push_back(b.weight(c, Fill::integers, DType::bfloat16));
          return operands;
        },
        {{"accumulate", std::string("float32")}, {"transB", int64_t{1}}}, kExact, 1, "tessera");

  auto gemm = [&](std::string_view what, std::string_view a, std::string_view b, const char* c,
                  std::vector<Attribute> attributes) {
    list.add(
        "Gemm", what,
        [=](Builder& builder) -> Operands {
          Operands operands{builder.input(a), builder.weight(b)};
          if (c) operands.push_back(builder.weight(c));
          return operands;
        },
        std::move(attributes));
  };
  gemm("without C", "4 6", "6 3", nullptr, {});
  gemm("a row of C", "4 6", "6 8", "8", {});
  gemm("transposed", "6 4", "5 6", "4 5", {{"transA", int64_t{1}}, {"transB", int64_t{1}}});
  gemm("a column of C, scaled", "4 6", "6 3", "4 1", {{"alpha", 2.0f}, {"beta", 3.0f}});
  gemm("nothing to sum", "4 0", "0 3", "3", {});
}

void add_einsums(CaseList& list) {
  auto einsum = [&](std::string equation, std::vector<std::string> shapes) {
    list.add("Einsum", equation,
             [&](Builder& b) -> Operands {
               Operands operands;
               for (const std::string& shape : shapes) operands.push_back(b.input(shape));
               return operands;
             },
             {{"equation", equation}});
  };
  einsum("ij,jk->ik", {"4 6", "6 3"});
  einsum("bhid,bhjd->bhij", {"2 3 4 2", "2 3 5 2"});
  einsum("...ij,...jk->...ik", {"2 3 4", "4 2"});
  einsum("ii->i", {"4 4"});
  einsum("ij->ji", {"4 6"});
  einsum("i,j", {"4", "3"});
  einsum("ij->", {"4 6"});
  einsum("ij,jk,kl->il", {"2 3", "3 4", "4 2"});
}

void add_convolutions(CaseList& list) {
  auto convolution = [&](std::string_view type, std::string_view what, std::string_view data, std::string_view weight,
                         const char* bias, std::vector<Attribute> attributes) {
    list.add(
        type, what,
        [=](Builder& b) -> Operands {
          Operands operands{b.input(data), b.weight(weight)};
          if (bias) operands.push_back(b.weight(bias));
          return operands;
        },
        std::move(attributes));
  };
  auto group = [](int64_t count) { return Attribute{"group", count}; };
  convolution("Conv", "pointwise", "2 6 3 4", "4 6 1 1", "4", {});
  convolution("Conv", "padded", "2 4 5 5", "6 4 3 3", "6", {{"pads", Ints{1, 1, 1, 1}}});
  convolution("Conv", "strided, dilated", "1 3 7 8", "4 3 2 2", nullptr,
              {{"strides", Ints{2, 1}}, {"dilations", Ints{1, 2}}});
  convolution("Conv", "grouped", "2 6 4 4", "4 3 3 3", "4", {group(2)});
  convolution("Conv", "depthwise", "2 6 4", "6 1 3", "6", {group(6), {"pads", Ints{1, 1}}});
  convolution("Conv", "one dimension", "3 4 6", "5 4 3", "5", {{"auto_pad", std::string("SAME_UPPER")}});
  // Products of such numbers and their sums are exact in float32, and not always in bfloat16.
  for (std::string_view type : {"Conv", "ConvTranspose"})
    for (int64_t groups : {1, 2})
      list.add(type, fmt::format("bfloat16, {} groups", groups),
               [groups](Builder& b) -> Operands {
                 return {b.input("2 8 5", Fill::integers, DType::bfloat16),
                         b.weight(fmt::format("8 {} 3", 8 / groups), Fill::integers, DType::bfloat16)};
               },
               {group(groups)});
  list.add("Conv", "weight from an input", [](Builder& b) -> Operands { return {b.input("2 4 4"), b.input("6 4 2")}; });
  convolution("ConvTranspose", "plain", "2 4 3 3", "4 6 2 2", "6", {});
  convolution("ConvTranspose", "strided", "1 4 3 3", "4 3 3 3", nullptr,
              {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}});
  convolution("ConvTranspose", "grouped", "2 6 3", "6 2 2", "4", {group(2)});
}

void add_pools(CaseList& list) {
  auto image = [](Builder& b) -> Operands { return {b.input("2 4 5 6")}; };
  Attribute window{"kernel_shape", Ints{2, 3}}, pads{"pads", Ints{1, 1, 0, 1}}, strides{"strides", Ints{2, 1}};
  for (std::string_view type : {"MaxPool", "AveragePool", "LpPool"}) {
    Bound bound = type == "MaxPool" ? kExact : kReordered;
    list.add(type, "plain", image, {window}, bound);
    list.add(type, "padded, strided", image, {window, pads, strides}, bound);
  }
  list.add("MaxPool", "with indices", image, {window}, kExact, 2);
  list.add("MaxPool", "with indices by columns", image, {window, pads, strides, {"storage_order", int64_t{1}}}, kExact,
           2);
  list.add(
      "MaxPool", "with indices of a symbolic batch",
      [](Builder& b) -> Operands { return {b.bind("b", 3).input("b 5 6")}; }, {{"kernel_shape", Ints{2}}}, kExact, 2);
  list.add("MaxPool", "one dimension", [](Builder& b) -> Operands { return {b.bind("b", 3).input("b 4 6")}; },
           {{"kernel_shape", Ints{2}}, {"ceil_mode", int64_t{1}}, {"strides", Ints{2}}});
  list.add("AveragePool", "counting the padding", image, {window, pads, {"count_include_pad", int64_t{1}}}, kReordered);
  for (std::string_view type : {"GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"})
    list.add(type, "images", image, {}, kReordered);
}

}  // namespace

std::vector<Subject> product_cases() {
  CaseList list;
  add_matmuls(list);
  add_einsums(list);
  add_convolutions(list);
  add_pools(list);
  return list.take();
}

}  // namespace tessera::property
