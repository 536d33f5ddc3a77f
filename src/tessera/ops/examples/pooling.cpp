#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

namespace {

using namespace example;
using Ints = std::vector<int64_t>;

void add_poolings_of_parts(std::string_view type, Rounding rounding, std::vector<Example>& all) {
  const std::vector<ExampleOperand> image = {input("1 2 9 7")};
  const Attribute window{"kernel_shape", Ints{3, 2}}, strides{"strides", Ints{2, 2}}, ceiling{"ceil_mode", int64_t{1}};
  const Attribute pads{"pads", Ints{1, 1, 2, 0}}, dilations{"dilations", Ints{2, 3}};
  const Attribute lower{"auto_pad", std::string("SAME_LOWER")};
  all.push_back({"with a last window that overhangs", image, {window, strides, pads, ceiling}, rounding});
  all.push_back({"dilated", image, {window, dilations, pads}, rounding});
  all.push_back({"same, lower", image, {window, strides, lower}, rounding});
  all.push_back(
      {"windows wider than shards", {input("1 2 6")}, {{"kernel_shape", Ints{5}}, {"pads", Ints{2, 2}}}, rounding});
  all.push_back({"a symbolic length",
                 {input("2 1 s=7")},
                 {{"kernel_shape", Ints{3}}, {"pads", Ints{1, 1}}, {"strides", Ints{2}}},
                 rounding});
  if (type == "AveragePool")
    all.push_back({"counting the padding and not what is beyond",
                   image,
                   {window, strides, pads, ceiling, {"count_include_pad", int64_t{1}}},
                   rounding});
  if (type != "MaxPool") return;
  all.push_back({"indices of windows that overhang", image, {window, strides, pads, ceiling}, none, 2});
  all.push_back({"indices by columns, dilated", image, {window, dilations, {"storage_order", int64_t{1}}}, none, 2});
}

}  // namespace

std::vector<Example> pooling_examples(std::string_view type) {
  const std::vector<ExampleOperand> image = {input("2 4 5 6")};
  if (type.starts_with("Global")) return {{"images", image, {}, reordered}};
  const Rounding rounding = type == "MaxPool" ? none : reordered;
  const Attribute window{"kernel_shape", Ints{2, 3}}, pair{"kernel_shape", Ints{2}};
  const Attribute pads{"pads", Ints{1, 1, 0, 1}}, strides{"strides", Ints{2, 1}};
  std::vector<Example> all = {
      {"plain", image, {window}, rounding},
      {"padded, strided", image, {window, pads, strides}, rounding},
  };
  if (type == "AveragePool")
    all.push_back({"counting the padding", image, {window, pads, {"count_include_pad", int64_t{1}}}, rounding});
  if (type == "MaxPool") {
    all.push_back({"with indices", image, {window}, none, 2});
    all.push_back({"with indices by columns", image, {window, pads, strides, {"storage_order", int64_t{1}}}, none, 2});
    all.push_back({"with indices of a symbolic batch", {input("b=3 5 6")}, {pair}, none, 2});
    all.push_back({"one dimension", {input("b=3 4 6")}, {pair, {"ceil_mode", int64_t{1}}, {"strides", Ints{2}}}});
  }
  add_poolings_of_parts(type, rounding, all);
  return all;
}

}  // namespace tessera::ops
