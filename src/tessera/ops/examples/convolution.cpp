#include "tessera/ops/examples/examples.h"

namespace tessera::ops {
namespace {

using namespace example;
using Ints = std::vector<int64_t>;

Attribute group(int64_t count) {
  return {"group", count};
}

// Products of such numbers and their sums are exact in float32, and not always in bfloat16.
void add_bfloat16(std::vector<Example>& all) {
  for (int64_t groups : {1, 2})
    all.push_back({"bfloat16, " + std::to_string(groups) + " groups",
                   {input("2 8 5", integers, DType::bfloat16),
                    weight("8 " + std::to_string(8 / groups) + " 3", integers, DType::bfloat16)},
                   {group(groups)}});
}

Attribute same_size(const char* side) {
  return {"auto_pad", std::string("SAME_") + side};
}

Example convolution(const char* what, const char* data, const char* kernels, std::vector<Attribute> attributes) {
  return {what, {input(data), weight(kernels)}, std::move(attributes)};
}

// Shards of 1 to 5 ranks: windows reach over several of them, and some have no element.
void add_convolutions_of_parts(std::vector<Example>& all) {
  all.push_back(convolution("windows wider than shards", "1 2 9", "2 2 7", {{"pads", Ints{3, 3}}}));
  all.push_back(convolution("more padding than elements", "1 1 2", "2 1 3", {{"pads", Ints{4, 5}}}));
  all.push_back(convolution("gaps between windows", "1 2 11", "2 2 2", {{"strides", Ints{4}}}));
  all.push_back(convolution("pointwise with strides", "1 2 9 4", "3 2 1 1", {{"strides", Ints{2, 3}}}));
  all.push_back(convolution("dilated, strided, padded", "1 2 13 8", "2 2 3 2",
                            {{"strides", Ints{3, 1}}, {"dilations", Ints{2, 3}}, {"pads", Ints{2, 1, 1, 2}}}));
  all.push_back(
      convolution("same, upper, strided", "1 2 8 7", "2 2 3 4", {same_size("UPPER"), {"strides", Ints{2, 2}}}));
  all.push_back(convolution("same, lower", "1 2 6 5", "2 2 2 4", {same_size("LOWER")}));
  all.push_back(convolution("volumes in groups", "1 4 4 3 5", "4 2 3 2 3", {group(2)}));
  all.push_back(convolution("padded volumes", "1 2 4 3 5", "2 2 3 2 3", {{"pads", Ints(6, 1)}}));
  all.push_back(convolution("a symbolic length", "1 2 s=7", "3 2 3", {{"pads", Ints{1, 1}}}));
  all.push_back(
      convolution("a symbolic length with strides", "2 2 s=7", "3 2 3", {{"pads", Ints{2, 0}}, {"strides", Ints{2}}}));
  all.push_back(convolution("same, of a symbolic length", "1 2 s=7", "3 2 3", {same_size("UPPER")}));
  all.push_back(convolution("one window", "1 2 6", "2 2 6", {}));
}

void add_transposes_of_parts(std::vector<Example>& all) {
  all.push_back(convolution("windows wider than shards", "1 2 5", "2 2 7", {{"pads", Ints{2, 3}}}));
  all.push_back(convolution("strided and dilated", "1 2 5 4", "2 3 3 2",
                            {{"strides", Ints{2, 3}}, {"dilations", Ints{2, 2}}, {"output_padding", Ints{1, 0}}}));
  all.push_back(convolution("gaps between windows", "1 2 4", "2 2 1", {{"strides", Ints{3}}}));
  all.push_back(convolution("a given length", "1 2 4", "2 2 3", {{"strides", Ints{2}}, {"output_shape", Ints{8}}}));
  all.push_back(convolution("a symbolic length", "1 2 s=7", "2 3 4", {{"strides", Ints{2}}, {"pads", Ints{1, 1}}}));
}

}  // namespace

std::vector<Example> convolution_examples(std::string_view type) {
  std::vector<Example> all;
  if (type == "Conv") {
    all = {
        {"pointwise", {input("2 6 3 4"), weight("4 6 1 1"), weight("4")}},
        {"padded", {input("2 4 5 5"), weight("6 4 3 3"), weight("6")}, {{"pads", Ints{1, 1, 1, 1}}}},
        {"strided, dilated",
         {input("1 3 7 8"), weight("4 3 2 2")},
         {{"strides", Ints{2, 1}}, {"dilations", Ints{1, 2}}}},
        {"grouped", {input("2 6 4 4"), weight("4 3 3 3"), weight("4")}, {group(2)}},
        {"depthwise", {input("2 6 4"), weight("6 1 3"), weight("6")}, {group(6), {"pads", Ints{1, 1}}}},
        {"one dimension", {input("3 4 6"), weight("5 4 3"), weight("5")}, {{"auto_pad", std::string("SAME_UPPER")}}},
    };
    add_bfloat16(all);
    all.push_back({"weight from an input", {input("2 4 4"), input("6 4 2")}});
    add_convolutions_of_parts(all);
    return all;
  }
  all = {
      {"plain", {input("2 4 3 3"), weight("4 6 2 2"), weight("6")}},
      {"strided",
       {input("1 4 3 3"), weight("4 3 3 3")},
       {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}}},
      {"grouped", {input("2 6 3"), weight("6 2 2"), weight("4")}, {group(2)}},
  };
  add_bfloat16(all);
  add_transposes_of_parts(all);
  return all;
}

std::vector<Example> integer_convolution_examples(std::string_view) {
  const std::vector<Attribute> padded = {{"pads", Ints{1, 1}}}, images = {{"pads", Ints{1, 1, 1, 1}}};
  std::vector<Example> all;
  const auto add = [&](std::string what, std::string data, std::string kernels, std::string zeros,
                       std::vector<Attribute> attributes) {
    for (const DType dtype : {DType::uint8, DType::int8})
      all.push_back({what + ", of " + std::string(name_of(dtype)),
                     {input(data, small, dtype), weight(kernels, small, DType::int8), input("", small, dtype),
                      weight(zeros, small, DType::int8)},
                     attributes});
  };
  add("padded", "2 3 6 5", "4 3 3 3", "", images);
  add("windows wider than shards", "1 2 9", "2 2 7", "2", {{"pads", Ints{3, 3}}});
  add("dilated and strided, in groups", "1 4 13 8", "6 2 3 2", "6",
      {group(2), {"strides", Ints{3, 1}}, {"dilations", Ints{2, 3}}, {"pads", Ints{2, 1, 1, 2}}});
  add("each channel alone", "1 6 7 5", "6 1 3 3", "6", {group(6), {"pads", Ints{1, 1, 1, 1}}});
  add("a symbolic length", "1 2 s=7", "3 2 3", "1", padded);
  all.push_back(
      {"a zero point in a list of one, and none of the weight",
       {input("2 2 6", small, DType::uint8), weight("3 2 3", small, DType::uint8), input("1", small, DType::uint8)},
       padded});
  return all;
}

}  // namespace tessera::ops
