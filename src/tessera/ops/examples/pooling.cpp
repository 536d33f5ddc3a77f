#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

using namespace example;

std::vector<Example> pooling_examples(std::string_view type) {
  using Ints = std::vector<int64_t>;
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
  if (type != "MaxPool") return all;
  all.push_back({"with indices", image, {window}, none, 2});
  all.push_back({"with indices by columns", image, {window, pads, strides, {"storage_order", int64_t{1}}}, none, 2});
  all.push_back({"with indices of a symbolic batch", {input("b=3 5 6")}, {pair}, none, 2});
  all.push_back({"one dimension", {input("b=3 4 6")}, {pair, {"ceil_mode", int64_t{1}}, {"strides", Ints{2}}}});
  return all;
}

}  // namespace tessera::ops
