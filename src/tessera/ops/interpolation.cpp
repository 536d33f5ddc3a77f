#include <fmt/format.h>

#include "tessera/ops/example.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/window.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

/// X [n, c, d…] at the places of a grid [n, e…, dims].
void infer_grid_sample(Node& node) {
  const Value& x = operand(node, 0);
  const Shape &from = x.shape(), &grid = shape_of(node, 1);
  if (from.size() < 3 || grid.size() != from.size() || !grid.back().is(static_cast<int64_t>(from.size()) - 2) ||
      !same_extent(from[0], grid[0]))
    fail_node(node, "its grid {} must give {} coordinates per place of each image of {}", to_string(grid),
              from.size() < 2 ? 0 : from.size() - 2, to_string(from));
  Shape shape = {from[0], from[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  set_result(node, 0, x.dtype(), std::move(shape));
}

Rule grid_sample_rule(const Node& node) {
  const Shape& y = node.output()->shape();
  Rule rule;
  std::vector<int> factors;
  for (size_t d = 0; d < y.size(); ++d) factors.push_back(y[d].is(1) ? -1 : rule.add(factor_name(d), y[d]));
  const auto dim = [&](size_t d) { return factors[d] < 0 ? DimFactors() : DimFactors{factors[d]}; };
  std::vector<DimFactors> x(y.size()), grid(y.size()), result;
  x[0] = dim(0);
  x[1] = dim(1);
  grid[0] = dim(0);
  for (size_t d = 2; d < y.size(); ++d) grid[d - 1] = dim(d);
  for (size_t d = 0; d < y.size(); ++d) result.push_back(dim(d));
  rule.operands = {x, grid};
  rule.results = {result};
  rule.partial(Reduction::sum, {0});
  return rule;
}

Expr sample_flops(const Node& node) {
  constexpr int64_t kPerElement = 12;
  return product(node.output()->shape()) * kPerElement;
}

/// X [images, c, h, w], in the regions [r, 4] of the images that [r] names.
void infer_roi_align(Node& node) {
  const Value& x = operand(node, 0);
  const Shape &rois = shape_of(node, 1), &images = shape_of(node, 2);
  if (x.rank() != 4 || rois.size() != 2 || !rois[1].is(4) || images.size() != 1 || !same_extent(rois[0], images[0]))
    fail_node(node,
              "its regions {} and their images {} must be [regions, 4] and [regions], and its input {} [images, "
              "channels, height, width]",
              to_string(rois), to_string(images), to_string(x.shape()));
  if (operand(node, 1).dtype() != x.dtype() || operand(node, 2).dtype() != DType::int64)
    fail_node(node, "its regions are {} and their images {}; they must be {} and int64",
              name_of(operand(node, 1).dtype()), name_of(operand(node, 2).dtype()), name_of(x.dtype()));
  set_result(node, 0, x.dtype(),
             {rois[0], x.shape()[1], node.get_int("output_height", 1), node.get_int("output_width", 1)});
}

Rule roi_align_rule(const Node& node) {
  return Rule::parse("1 c 1 1, r 1, r -> r c 1 1", {&shape_of(node, 0), &shape_of(node, 1), &shape_of(node, 2)},
                     {&node.output()->shape()});
}

/// X [n, c, h, w] under windows whose places an offset [n, groups · window · 2, h', w'] moves.
void infer_deformable(Node& node) {
  const Value& x = operand(node, 0);
  const Shape &weight = shape_of(node, 1), &offset = shape_of(node, 2);
  if (x.rank() != 4 || weight.size() != 4 || offset.size() != 4)
    fail_node(node, "its input {}, weight {} and offset {} must each have four dimensions", to_string(x.shape()),
              to_string(weight), to_string(offset));
  const Expr window = weight[2] * weight[3] * node.get_int("offset_group", 1);
  if (!same_extent(offset[1], window * 2) || (has_operand(node, 4) && !same_extent(shape_of(node, 4).at(1), window)))
    fail_node(node, "its offset {} must have {} channels, and its mask half as many", to_string(offset),
              (window * 2).str());
  if (!same_extent(offset[0], x.shape()[0]) ||
      (has_operand(node, 3) && (shape_of(node, 3).size() != 1 || !same_extent(shape_of(node, 3)[0], weight[0]))))
    fail_node(node, "its offset {} must have the batch of its input {}, and its bias a number per output channel",
              to_string(offset), to_string(x.shape()));
  if (has_operand(node, 4)) {
    const Shape& mask = shape_of(node, 4);
    if (mask.size() != 4 || !same_extent(mask[0], offset[0]) || !same_extent(mask[2], offset[2]) ||
        !same_extent(mask[3], offset[3]))
      fail_node(node, "its mask {} must have the places of its offset {}", to_string(mask), to_string(offset));
  }
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (has_operand(node, i) && operand(node, i).dtype() != x.dtype())
      fail_node(node, "its operand '{}' is {}; it must be {} as the input is", node.inputs[i]->name,
                name_of(operand(node, i).dtype()), name_of(x.dtype()));
  set_result(node, 0, x.dtype(), {x.shape()[0], weight[0], offset[2], offset[3]});
}

Rule deformable_rule(const Node& node) {
  const bool grouped = node.get_int("group", 1) != 1;
  Rule rule;
  const Shape& y = node.output()->shape();
  const DimFactors n = y[0].is(1) ? DimFactors() : DimFactors{rule.add("n", y[0])};
  const DimFactors m = y[1].is(1) || grouped ? DimFactors() : DimFactors{rule.add("m", y[1])};
  rule.operands = {{n, {}, {}, {}}, {m, {}, {}, {}}, {n, {}, {}, {}}};
  if (node.inputs.size() > 3)
    rule.operands.push_back(has_operand(node, 3) ? std::vector<DimFactors>{m} : std::vector<DimFactors>());
  if (node.inputs.size() > 4)
    rule.operands.push_back(has_operand(node, 4) ? std::vector<DimFactors>{n, {}, {}, {}} : std::vector<DimFactors>());
  rule.results = {{n, m, {}, {}}};
  return rule;
}

Expr deformable_flops(const Node& node) {
  const Shape& weight = shape_of(node, 1);
  return product(node.output()->shape()) * weight[1] * weight[2] * weight[3] * 2;
}

std::vector<Example> grid_sample_examples(std::string_view) {
  using namespace example;
  std::vector<Example> all;
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      all.push_back({fmt::format("{}, {}", mode, padding),
                     {input("2 3 4 5", reals), input("2 3 4 2", reals)},
                     {{"mode", std::string(mode)}, {"padding_mode", std::string(padding)}}});
  all.push_back({"volumes by their corners",
                 {input("2 2 3 4 5", reals), input("2 2 3 4 3", unit)},
                 {{"mode", std::string("linear")}, {"align_corners", int64_t{1}}}});
  return all;
}

std::vector<Example> roi_align_examples(std::string_view) {
  using namespace example;
  const Tensor regions = Tensor::of<float>(DType::float32, {3, 4}, {0, 0, 5, 5, 1, 1, 3, 4, 0, 2, 6, 6});
  std::vector<Example> all;
  for (const char* mode : {"avg", "max"})
    all.push_back({mode,
                   {input("2 4 6 6", reals), constant(regions), indices("3", 0, 2)},
                   {{"mode", std::string(mode)}, {"output_height", int64_t{2}}, {"output_width", int64_t{3}}}});
  return all;
}

std::vector<Example> deformable_examples(std::string_view) {
  using namespace example;
  const std::vector<ExampleOperand> plain = {input("2 4 5 5", reals), weight("6 4 2 2", reals), input("2 8 4 4", unit)};
  std::vector<ExampleOperand> whole = plain, grouped = plain;
  whole.push_back(weight("6", reals));
  whole.push_back(input("2 4 4 4", unit));
  grouped[1].extents = "6 2 2 2";
  return {{"plain", plain}, {"with bias and mask", whole}, {"in groups", grouped, {{"group", int64_t{2}}}}};
}

constexpr std::string_view kNotYet = "it is not taken yet";

}  // namespace

std::vector<OpDef> interpolation_ops() {
  return {
      {.type = "GridSample",
       .infer = infer_grid_sample,
       .rule = grid_sample_rule,
       .flops = sample_flops,
       .no_gradient = kNotYet,
       .examples = grid_sample_examples},
      {.type = "RoiAlign",
       .infer = infer_roi_align,
       .rule = roi_align_rule,
       .flops = sample_flops,
       .no_gradient = kNotYet,
       .examples = roi_align_examples},
      {.type = "DeformConv",
       .infer = infer_deformable,
       .rule = deformable_rule,
       .flops = deformable_flops,
       .no_gradient = kNotYet,
       .examples = deformable_examples},
  };
}

}  // namespace tessera::ops
