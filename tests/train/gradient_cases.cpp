#include "train/gradient_cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "property/cases.h"
#include "tessera/ops/op.h"

namespace tessera::train {
namespace {

using property::axis;
using property::Builder;
using property::CaseList;
using property::Fill;
using property::Subject;
using Operands = std::vector<Value*>;
using Ints = std::vector<int64_t>;

Attribute word(std::string name, std::string value) {
  return {std::move(name), std::move(value)};
}

Attribute number(std::string name, int64_t value) {
  return {std::move(name), value};
}

Attribute ints(std::string name, Ints values) {
  return {std::move(name), std::move(values)};
}

// Operands of these extents, all real numbers.
CaseList::Make reals(std::vector<std::string> extents) {
  return [extents](Builder& b) -> Operands {
    b.bind("b", 3).bind("s", 4);
    Operands operands;
    for (const std::string& each : extents) operands.push_back(each == "-" ? nullptr : b.input(each, Fill::reals));
    return operands;
  };
}

void add_broadcasts(CaseList& list) {
  struct Kind {
    std::string_view type;
    Fill left, right;
  };
  for (const Kind& kind : {Kind{"Add", Fill::reals, Fill::reals}, Kind{"Sub", Fill::reals, Fill::reals},
                           Kind{"Mul", Fill::reals, Fill::reals}, Kind{"Div", Fill::reals, Fill::nonzero},
                           Kind{"Pow", Fill::above_one, Fill::reals}, Kind{"Max", Fill::reals, Fill::reals},
                           Kind{"Min", Fill::reals, Fill::reals}, Kind{"Mean", Fill::reals, Fill::reals},
                           Kind{"Sum", Fill::reals, Fill::reals}})
    for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
             {"3 1", "1 4"}, {"4", "2 3 4"}, {"", "2 3"}, {"2 3", ""}, {"1 1", "3"}, {"b 1", "b 4"}, {"0 4", "4"}})
      list.add(kind.type, fmt::format("[{}] and [{}]", left, right), [&](Builder& b) -> Operands {
        b.bind("b", 3);
        return {b.input(left, kind.left), b.input(right, kind.right)};
      });
  list.add("Mod", "fmod, both ways",
           [](Builder& b) -> Operands {
             return {b.input("3 1"), b.input("1 4", Fill::nonzero)};
           },
           {number("fmod", 1)});
  for (double exponent : {0.0, 1.0, 2.0, 3.0, -1.0, 0.5})
    list.add("Pow", fmt::format("to the {}", exponent), [&](Builder& b) -> Operands {
      return {b.input("3 4", Fill::positive), b.number(exponent)};
    });
  list.add("Pow", "to whole numbers", [](Builder& b) -> Operands {
    return {b.input("3 4", Fill::nonzero), b.indices("4", -2, 4)};
  });
  list.add("PRelu", "a slope for each channel", reals({"2 3 2 2", "3 1 1"}));
  list.add("PRelu", "one slope", reals({"3 4", "1"}));
  list.add("Where", "every operand is broadcast", [](Builder& b) -> Operands {
    return {b.input("4 1", Fill::integers, DType::boolean), b.input("6"), b.input("1 1")};
  });
  list.add("Clip", "the lower end", [](Builder& b) -> Operands { return {b.input("6 4"), b.number(-2)}; });
  list.add("Clip", "crossed ends", [](Builder& b) -> Operands { return {b.input("6 4"), b.number(3), b.number(-2)}; });
  for (std::string_view type : {"Max", "Min", "Sum", "Mean"})
    list.add(type, "the same operand twice", [](Builder& b) -> Operands {
      Value* x = b.input("4 3");
      return {x, b.input("3"), x};
    });
  list.add("Mul", "by itself", [](Builder& b) -> Operands {
    Value* x = b.input("4 3");
    return {x, x};
  });
  list.add("CastLike", "a float", reals({"4 3", "2"}));
  list.add("Cast", "float to float", reals({"4 3"}), {number("to", static_cast<int64_t>(DType::float32))});
  for (std::string_view type : {"HardSigmoid", "Elu", "Selu", "ThresholdedRelu", "LeakyRelu", "Celu", "Swish"})
    list.add(type, "alpha of its own", reals({"5 7"}), {{"alpha", 0.7f}});
  list.add("Shrink", "narrow", reals({"5 7"}), {{"lambd", 0.2f}, {"bias", 0.1f}});
  for (std::string_view type : {"Gelu", "Mish", "HardSwish", "Softplus"})
    list.add(type, "wide", [](Builder& b) -> Operands { return {b.input("6 8")}; });
}

void add_shapes(CaseList& list) {
  list.add("Expand", "both ways", [](Builder& b) -> Operands { return {b.input("3 1"), b.ints({2, 1, 4})}; });
  list.add("Expand", "to nothing", [](Builder& b) -> Operands { return {b.input("1 4"), b.ints({0, 4})}; });
  list.add("Tile", "no times", [](Builder& b) -> Operands { return {b.input("3 4"), b.ints({0, 2})}; });
  list.add("Tile", "three dimensions", [](Builder& b) -> Operands { return {b.input("2 1 3"), b.ints({2, 3, 1})}; });
  list.add("Concat", "one operand", reals({"2 3"}), {axis(-2)});
  list.add("Concat", "the same operand twice",
           [](Builder& b) -> Operands {
             Value* x = b.input("2 3");
             return {x, b.input("1 3"), x};
           },
           {axis(0)});
  list.add("Split", "one piece", reals({"2 6"}), {axis(-1), number("num_outputs", 1)});
  list.add("Reshape", "nothing to nothing", [](Builder& b) -> Operands { return {b.input("2 0 3"), b.ints({0, -1})}; });
  list.add("Squeeze", "to a scalar", reals({"1 1"}));
  for (int64_t k : {-2, 0, 1})
    for (int64_t upper : {0, 1})
      list.add("Trilu", fmt::format("k {} upper {}", k, upper),
               [&](Builder& b) -> Operands {
                 return {b.input("2 4 5"), b.integer(k)};
               },
               {number("upper", upper)});
  list.add("Transpose", "five dimensions", reals({"2 1 3 2 2"}), {ints("perm", {4, 1, 0, 3, 2})});

  const auto slice = [&](std::string_view what, std::string_view from, Ints starts, Ints ends, Ints axes, Ints steps) {
    list.add("Slice", what, [&](Builder& b) -> Operands {
      b.bind("b", 5);
      Operands operands{b.input(from), b.ints(starts), b.ints(ends)};
      if (!axes.empty()) operands.push_back(b.ints(axes));
      if (!steps.empty()) operands.resize(4), operands.push_back(b.ints(steps));
      return operands;
    });
  };
  slice("backwards, all", "6", {-1}, {INT64_MIN}, {0}, {-1});
  slice("backwards by three", "7 2", {5}, {0}, {0}, {-3});
  slice("by two, off the end", "5 4", {1, 0}, {100, 100}, {-2, -1}, {2, 3});
  slice("nothing", "5 4", {4}, {1}, {0}, {});
  slice("nothing, backwards", "5 4", {1}, {4}, {0}, {-1});
  slice("before the start", "5 4", {-100, 1}, {2, -1}, {}, {});
  slice("the last of a symbolic extent", "b 3", {-2}, {INT64_MAX}, {0}, {});
  slice("the first of a symbolic extent", "b 3", {0}, {-1}, {0}, {1});

  for (std::string mode : {"constant", "edge", "reflect", "wrap"}) {
    const auto pad = [&](std::string_view what, std::string_view from, Ints pads, Ints axes) {
      list.add("Pad", mode + ", " + std::string(what),
               [&](Builder& b) -> Operands {
                 Operands operands{b.bind("b", 3).input(from), b.ints(pads)};
                 if (!axes.empty()) {
                   operands.resize(4);
                   operands[3] = b.ints(axes);
                 }
                 return operands;
               },
               {word("mode", mode)});
    };
    pad("both dimensions", "4 5", {1, 2, 3, 1}, {});
    pad("a negative axis", "2 4 3", {2, 1}, {-2});
    pad("less than nothing", "4 5", {-1, 2, 1, -2}, {});
    pad("of a symbolic batch", "b 4", {0, 1, 0, 2}, {});
  }
  list.add("Pad", "edge, less than nothing on both sides",
           [](Builder& b) -> Operands {
             return {b.input("5 3"), b.ints({-1, 0, -2, 0})};
           },
           {word("mode", "edge")});
  list.add("Pad", "with a trained value", [](Builder& b) -> Operands {
    return {b.input("3 4"), b.ints({1, -1, 0, 2}), b.input("")};
  });
}

void add_resizes(CaseList& list) {
  const auto scaled = [&](std::string_view what, std::string_view from, std::vector<float> scales,
                          std::vector<Attribute> attributes) {
    list.add(
        "Resize", what,
        [&](Builder& b) -> Operands {
          return {b.input(from), nullptr,
                  b.constant(Tensor::of<float>(DType::float32, {static_cast<int64_t>(scales.size())}, scales))};
        },
        std::move(attributes));
  };
  for (std::string mode : {"nearest", "linear", "cubic"})
    for (std::string coordinates :
         {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}) {
      const std::vector<Attribute> attributes = {word("mode", mode),
                                                 word("coordinate_transformation_mode", coordinates)};
      scaled(mode + ", " + coordinates + ", up and down", "1 2 5 4", {1, 1, 1.7f, 0.6f}, attributes);
      scaled(mode + ", " + coordinates + ", to the same extents", "1 2 4 3", {1, 1, 1.2f, 1}, attributes);
      list.add(
          "Resize", mode + ", " + coordinates + ", to sizes",
          [](Builder& b) -> Operands {
            return {b.input("1 2 5 4"), nullptr, nullptr, b.ints({1, 2, 3, 7})};
          },
          attributes);
      std::vector<Attribute> along = attributes;
      along.push_back(ints("axes", {-1, 2}));
      list.add(
          "Resize", mode + ", " + coordinates + ", some axes",
          [](Builder& b) -> Operands {
            return {b.input("1 2 5 4"), nullptr, nullptr, b.ints({6, 3})};
          },
          along);
      scaled(mode + ", " + coordinates + ", axes and scales", "1 2 5 4", {2, 0.5f}, along);
    }
  for (std::string nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
    scaled("nearest, " + nearest, "1 1 5 4", {1, 1, 1.5f, 0.6f},
           {word("mode", "nearest"), word("nearest_mode", nearest)});
  scaled("cubic, nothing from outside", "1 1 5 4", {1, 1, 1.5f, 0.6f},
         {word("mode", "cubic"), number("exclude_outside", 1), {"cubic_coeff_a", -0.5f}});
  for (std::string mode : {"linear", "cubic"})
    scaled(mode + ", antialiased", "1 1 5 6", {1, 1, 0.6f, 0.5f}, {word("mode", mode), number("antialias", 1)});
}

void add_indices(CaseList& list) {
  list.add("Gather", "repeated", [](Builder& b) -> Operands {
    return {b.input("4 3"), b.constant(Tensor::of<int64_t>(DType::int64, {2, 3}, {1, 1, -1, 3, 1, 0}))};
  });
  list.add("Gather", "repeated in the middle, int32",
           [](Builder& b) -> Operands {
             return {b.input("2 4 3"), b.constant(Tensor::of<int32_t>(DType::int32, {3}, {2, 2, -2}))};
           },
           {axis(-2)});
  list.add("Gather", "two dimensions of indices in the middle",
           [](Builder& b) -> Operands {
             return {b.input("2 4 3"), b.indices("2 2", -4, 4)};
           },
           {axis(1)});
  list.add("Gather", "a scalar of the last",
           [](Builder& b) -> Operands {
             return {b.input("2 4"), b.integer(-3)};
           },
           {axis(1)});
  list.add("GatherElements", "repeated",
           [](Builder& b) -> Operands {
             return {b.input("3 4"), b.constant(Tensor::of<int64_t>(DType::int64, {2, 4}, {0, 0, -1, 2, 0, 0, 2, -3}))};
           },
           {axis(-2)});
  list.add("GatherND", "repeated", [](Builder& b) -> Operands {
    return {b.input("3 4 2"), b.constant(Tensor::of<int64_t>(DType::int64, {4, 2}, {0, -1, 0, 3, 2, 1, 0, 3}))};
  });
  list.add("GatherND", "in two batches",
           [](Builder& b) -> Operands {
             return {b.input("2 3 4 2"), b.indices("2 3 2 1", -4, 4)};
           },
           {number("batch_dims", 2)});
  list.add("GatherND", "in a symbolic batch, repeated",
           [](Builder& b) -> Operands {
             return {b.bind("b", 3).input("b 3 2"), b.indices("b 5 1", 0, 3)};
           },
           {number("batch_dims", 1)});
  list.add("TensorScatter", "in two samples", [](Builder& b) -> Operands {
    return {b.input("2 2 4 3"), b.input("2 2 2 3"), b.constant(Tensor::of<int64_t>(DType::int64, {2}, {2, 0}))};
  });
  list.add("TensorScatter", "around the end",
           [](Builder& b) -> Operands {
             return {b.input("2 4 3"), b.input("2 2 3"), b.constant(Tensor::of<int64_t>(DType::int64, {2}, {3, 1}))};
           },
           {axis(1), word("mode", "circular")});
  list.add("ScatterND", "added, repeated",
           [](Builder& b) -> Operands {
             return {b.input("4 2"), b.constant(Tensor::of<int64_t>(DType::int64, {3, 1}, {1, 1, -1})), b.input("3 2")};
           },
           {word("reduction", "add")});
  list.add("ScatterElements", "added, repeated, a negative axis",
           [](Builder& b) -> Operands {
             return {b.input("2 4"), b.constant(Tensor::of<int64_t>(DType::int64, {2, 3}, {1, 1, -1, 0, 0, 0})),
                     b.input("2 3")};
           },
           {axis(-1), word("reduction", "add")});
  for (std::string reduction : {"mul", "max", "min"}) {
    list.add(
        "ScatterND", reduction + ", repeated",
        [](Builder& b) -> Operands {
          return {b.input("4 2"), b.constant(Tensor::of<int64_t>(DType::int64, {4, 1}, {1, 1, -1, 1})), b.input("4 2")};
        },
        {word("reduction", reduction)});
    list.add("ScatterElements", reduction + ", repeated",
             [](Builder& b) -> Operands {
               return {b.input("2 4"), b.constant(Tensor::of<int64_t>(DType::int64, {2, 3}, {1, 1, -1, 0, 0, 0})),
                       b.input("2 3")};
             },
             {axis(1), word("reduction", reduction)});
  }
  const auto top = [&](std::string_view what, std::string_view from, int64_t k, std::vector<Attribute> attributes) {
    list.add(
        "TopK", what,
        [&](Builder& b) -> Operands {
          return {b.input(from, Fill::ordered), b.ints({k})};
        },
        std::move(attributes), property::kExact, 2);
  };
  top("all", "3 4", 4, {});
  top("none", "3 4", 0, {});
  top("smallest of a middle dimension", "2 4 3", 2, {axis(-2), number("largest", 0)});
  for (int64_t exclusive : {0, 1})
    for (int64_t reverse : {0, 1})
      list.add("CumSum", fmt::format("exclusive {} reverse {}", exclusive, reverse),
               [](Builder& b) -> Operands {
                 return {b.input("3 4 2"), b.integer(-2)};
               },
               {number("exclusive", exclusive), number("reverse", reverse)});
}

void add_reductions(CaseList& list) {
  for (std::string_view type : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1",
                                "ReduceL2", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"}) {
    const auto add = [&](std::string_view what, std::string_view from, const Ints* axes,
                         std::vector<Attribute> attributes) {
      list.add(
          type, what,
          [&](Builder& b) -> Operands {
            Operands operands{b.input(from, Fill::positive)};
            if (axes) operands.push_back(b.ints(*axes));
            return operands;
          },
          std::move(attributes));
    };
    const Ints middle = {-2}, none = {}, two = {2, 0}, last = {-1};
    add("a middle dimension, dropped", "2 3 4", &middle, {number("keepdims", 0)});
    add("out of order", "2 3 4", &two, {});
    add("no axes, all", "2 3", &none, {});
    add("no axes, none", "2 3", &none, {number("noop_with_empty_axes", 1)});
    add("axes left out, none", "2 3", nullptr, {number("noop_with_empty_axes", 1)});
    add("a dimension of one", "3 1", &last, {});
    add("no rows", "0 4", &last, {});
  }
}

void add_normalizations(CaseList& list) {
  for (std::string_view type : {"Softmax", "LogSoftmax", "LpNormalization"})
    for (int64_t along : {0, 1, -3}) list.add(type, fmt::format("axis {}", along), reals({"3 4 2"}), {axis(along)});
  list.add("LpNormalization", "of absolute values, first", reals({"3 4"}), {axis(0), number("p", 1)});
  for (int64_t along : {0, 1, -1}) {
    const std::string scale = along == 0 ? "2 3 4" : along == 1 ? "3 4" : "4";
    list.add("LayerNormalization", fmt::format("from axis {}", along), reals({"2 3 4", scale, scale}),
             {axis(along), {"epsilon", 0.1f}});
    list.add("LayerNormalization", fmt::format("from axis {}, unshifted", along), reals({"2 3 4", scale}),
             {axis(along)});
    list.add("RMSNormalization", fmt::format("from axis {}", along), reals({"2 3 4", scale}),
             {axis(along), {"epsilon", 0.1f}});
  }
  list.add("BatchNormalization", "one spatial dimension",
           [](Builder& b) -> Operands {
             return {b.input("2 3 4", Fill::reals), b.input("3", Fill::reals), b.input("3", Fill::reals),
                     b.weight("3", Fill::reals), b.weight("3", Fill::above_one)};
           },
           {{"epsilon", 0.1f}});
  list.add("InstanceNormalization", "one spatial dimension", reals({"2 3 5", "3", "3"}), {{"epsilon", 0.1f}});
  list.add("GroupNormalization", "a group for each channel", reals({"2 4 3 2", "4", "4"}),
           {number("num_groups", 4), {"epsilon", 0.1f}});
  list.add("GroupNormalization", "symbolic", reals({"b 4 3", "4", "4"}), {number("num_groups", 2)});
  list.add("MeanVarianceNormalization", "of a batch", reals({"3 2 2 2"}), {ints("axes", {0, -1})});
}

void add_products(CaseList& list) {
  const auto product = [&](std::string a, std::string b) {
    list.add("MatMul", fmt::format("[{}] by [{}]", a, b), reals({a, b}));
  };
  product("6", "2 6 3");
  product("2 3 6", "6");
  product("1 2 3 4", "5 1 4 2");
  product("3 4", "2 4 5");
  product("5 3 4", "4 2");
  product("b 3 4", "4 2");
  product("b 3 4", "b 4 2");
  product("2 0 4", "4 3");
  product("b 4", "4");
  for (int64_t a : {0, 1})
    for (int64_t b : {0, 1})
      for (std::string c : {"-", "", "1", "5", "3 1", "1 5", "3 5"})
        list.add("Gemm", fmt::format("transA {} transB {} C [{}]", a, b, c),
                 reals({a ? "4 3" : "3 4", b ? "5 4" : "4 5", c}),
                 {number("transA", a), number("transB", b), {"alpha", 0.5f}, {"beta", -2.0f}});
  const auto einsum = [&](std::string equation, std::vector<std::string> extents) {
    list.add("Einsum", equation + " more", reals(std::move(extents)), {word("equation", equation)});
  };
  einsum("ij,ij->", {"3 4", "3 4"});
  einsum("ij,jk->", {"3 4", "4 2"});
  einsum("ij,k->k", {"3 4", "5"});
  einsum("...i,...i->...", {"2 1 4", "3 4"});
  einsum("...ij->...i", {"2 3 4"});
  einsum("b...d,d->b...", {"2 3 4", "4"});
  einsum("bhid,bhjd,bhij->bhd", {"1 2 3 2", "1 2 4 2", "1 2 3 4"});
  einsum("bij,bjk", {"2 3 4", "2 4 2"});
  einsum("ii->i", {"3 3"});
  einsum("iij->j", {"3 3 2"});
  einsum("ii", {"3 3"});
  einsum("iii,i->", {"2 2 2", "2"});
  einsum("bii,ij->bj", {"2 3 3", "3 4"});
  einsum("aa,bb->ab", {"2 2", "3 3"});
  einsum("i->i", {"4"});
  einsum("bi,ij->bj", {"b 3", "3 2"});
}

void add_convolutions(CaseList& list) {
  const auto add = [&](std::string_view type, std::string_view what, std::string data, std::string weight,
                       std::string bias, std::vector<Attribute> attributes) {
    list.add(
        type, what,
        [&](Builder& b) -> Operands {
          b.bind("b", 2);
          Operands operands{b.input(data), b.input(weight)};
          if (!bias.empty()) operands.push_back(b.input(bias));
          return operands;
        },
        std::move(attributes));
  };
  const auto strides = [](Ints values) { return ints("strides", std::move(values)); };
  const auto dilations = [](Ints values) { return ints("dilations", std::move(values)); };
  const auto pads = [](Ints values) { return ints("pads", std::move(values)); };
  add("Conv", "elements that no window reaches", "1 2 8 9", "3 2 3 2", "3", {strides({3, 4})});
  add("Conv", "more padding than windows reach", "1 2 4", "2 2 2", "", {strides({3}), pads({1, 3})});
  add("Conv", "uneven padding, everything at once", "2 4 6 5", "6 2 3 2", "6",
      {number("group", 2), strides({2, 1}), dilations({1, 2}), pads({0, 2, 1, 1})});
  add("Conv", "three dimensions", "1 2 3 4 3", "2 1 2 2 2", "2", {number("group", 2), strides({1, 2, 1})});
  add("Conv", "depthwise, two for each channel", "2 3 5", "6 1 3", "", {number("group", 3), pads({1, 1})});
  add("Conv", "a symbolic batch", "b 2 4", "3 2 3", "3", {pads({1, 1})});
  add("Conv", "a dilated kernel that fits once", "1 1 5", "2 1 3", "", {dilations({2})});
  for (std::string pad : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    add("Conv", pad, "1 2 6 5", "2 2 3 2", "2", {word("auto_pad", pad), strides({2, 3})});
    add("Conv", pad + ", dilated", "1 2 6 5", "2 2 3 2", "", {word("auto_pad", pad), dilations({2, 1})});
    add("ConvTranspose", pad, "1 2 3 4", "2 3 3 2", "3", {word("auto_pad", pad), strides({2, 3})});
    add("ConvTranspose", pad + ", a kernel smaller than the stride", "1 2 3", "2 3 2", "",
        {word("auto_pad", pad), strides({3})});
  }
  add("ConvTranspose", "everything at once", "2 4 3 4", "4 3 3 2", "6",
      {number("group", 2), strides({3, 2}), dilations({1, 2}), pads({1, 0, 0, 2}), ints("output_padding", {2, 1})});
  add("ConvTranspose", "to a shape", "1 2 3 3", "2 1 3 3", "1", {strides({2, 2}), ints("output_shape", {7, 6})});
  add("ConvTranspose", "to a larger shape", "1 2 3", "2 1 2", "", {strides({3}), ints("output_shape", {9})});
  add("ConvTranspose", "three dimensions", "1 1 2 3 2", "1 2 2 2 2", "", {strides({1, 2, 1})});
}

void add_pools(CaseList& list) {
  const auto pool = [&](std::string_view what, std::string_view from, std::vector<Attribute> attributes) {
    for (std::string_view type : {"MaxPool", "AveragePool", "LpPool"})
      list.add(
          type, what, [&](Builder& b) -> Operands { return {b.bind("b", 2).input(from, Fill::ordered)}; }, attributes);
    attributes.push_back(number("count_include_pad", 1));
    list.add(
        "AveragePool", std::string(what) + ", with padding",
        [&](Builder& b) -> Operands { return {b.bind("b", 2).input(from, Fill::ordered)}; }, attributes);
  };
  const auto kernel = [](Ints values) { return ints("kernel_shape", std::move(values)); };
  for (int64_t ceil : {0, 1}) {
    const Attribute mode = number("ceil_mode", ceil);
    const std::string how = ceil ? ", ceil" : "";
    pool("strided" + how, "1 2 6 7", {kernel({3, 2}), ints("strides", {2, 3}), mode});
    pool("uneven padding" + how, "2 2 5 6",
         {kernel({3, 3}), ints("strides", {2, 2}), ints("pads", {1, 0, 2, 1}), mode});
    pool("dilated" + how, "1 2 7 6", {kernel({2, 3}), ints("dilations", {3, 2}), ints("strides", {2, 1}), mode});
    pool("three dimensions" + how, "1 1 4 3 5", {kernel({2, 2, 3}), ints("strides", {2, 1, 2}), mode});
    pool("a symbolic batch" + how, "b 2 6", {kernel({3}), ints("strides", {2}), mode});
    pool("overlapping" + how, "1 1 6", {kernel({4}), ints("pads", {2, 2}), mode});
  }
  for (std::string pad : {"SAME_UPPER", "SAME_LOWER", "VALID"})
    pool(pad, "1 2 6 5", {kernel({3, 2}), ints("strides", {2, 2}), word("auto_pad", pad)});
  for (int64_t p : {1, 2, 3}) {
    list.add("LpPool", fmt::format("p {}", p), reals({"1 2 5 4"}),
             {kernel({2, 3}), number("p", p), ints("pads", {1, 0, 0, 1})});
    list.add("GlobalLpPool", fmt::format("p {}", p), reals({"2 3 3 2"}), {number("p", p)});
  }
  list.add("MaxPool", "by columns, with indices", reals({"1 2 4 5"}), {kernel({2, 2}), number("storage_order", 1)},
           property::kExact, 2);
}

void add_attentions(CaseList& list) {
  const auto add = [&](std::string_view what, std::vector<std::string> extents, std::vector<Attribute> attributes,
                       bool boolean = false) {
    list.add(
        "Attention", what,
        [&](Builder& b) -> Operands {
          Operands operands;
          for (size_t i = 0; i < extents.size(); ++i)
            operands.push_back(i == 3 && boolean ? b.input(extents[i], Fill::integers, DType::boolean)
                                                 : b.input(extents[i], Fill::unit));
          return operands;
        },
        std::move(attributes));
  };
  const Attribute causal = number("is_causal", 1);
  const auto left = [](int64_t size) { return number("left_window_size", size); };
  const auto right = [](int64_t size) { return number("right_window_size", size); };
  add("causal, more keys than queries", {"1 2 3 4", "1 2 5 4", "1 2 5 4"}, {causal});
  add("causal, more queries than keys", {"1 2 5 4", "1 2 3 4", "1 2 3 4"}, {causal});
  add("a window", {"1 2 5 4", "1 2 5 4", "1 2 5 4"}, {left(2), right(1)});
  add("a window to the left, causal", {"1 4 5 4", "1 2 5 4", "1 2 5 3"}, {left(1), causal});
  add("a window to the right", {"1 2 5 4", "1 2 5 4", "1 2 5 4"}, {right(0)});
  add("queries that see nothing", {"1 1 5 4", "1 1 2 4", "1 1 2 4"}, {left(1), right(0)});
  for (std::string mask : {"5 4", "1 4", "5 1", "6 5 4", "1 1 5 4", "2 1 1 4", "1 6 1 4", "2 6 5 4", "1 1 1 1"}) {
    add("a mask of [" + mask + "]", {"2 6 5 2", "2 6 4 2", "2 6 4 2", mask}, {});
    add("grouped, a mask of [" + mask + "]", {"2 6 5 2", "2 3 4 2", "2 3 4 2", mask}, {causal});

    add("a boolean mask of [" + mask + "]", {"2 6 5 2", "2 3 4 2", "2 3 4 2", mask}, {causal}, true);
  }
  for (bool boolean : {false, true}) {
    add(fmt::format("{} of fewer keys", boolean ? "a boolean mask" : "a mask"),
        {"2 6 5 2", "2 3 4 2", "2 3 4 2", "5 3"}, {causal}, boolean);
    add(fmt::format("{} of one key", boolean ? "a boolean mask" : "a mask"), {"1 2 5 2", "1 2 4 2", "1 2 4 2", "2 5 1"},
        {}, boolean);
  }
  add("all at once", {"2 6 5 2", "2 3 5 2", "2 3 5 3", "6 5 5"}, {causal, left(3), {"softcap", 0.8f}, {"scale", 0.9f}});
  add("packed, all at once", {"2 5 12", "2 5 6", "2 5 9", "2 6 5 5"},
      {number("q_num_heads", 6), number("kv_num_heads", 3), causal, {"softcap", 1.5f}});
  add("packed, one key head", {"2 3 12", "2 5 3", "2 5 3"}, {number("q_num_heads", 4), number("kv_num_heads", 1)});
}

}  // namespace

/// Experts of codes, whose scales are float32 only, have no gradient.
bool has_codes(const Subject& subject) {
  const Node& node = *subject.graph->nodes().front();
  return node.op_type == "Experts" && std::any_of(node.inputs.begin(), node.inputs.end(), [](const Value* operand) {
           return operand && operand->dtype() == DType::uint8;
         });
}

std::vector<Subject> gradient_cases() {
  std::vector<Subject> all;
  const auto append = [&](std::vector<Subject> subjects) {
    for (Subject& subject : subjects)
      if (!subject.graph->nodes().empty() && !has_codes(subject)) all.push_back(std::move(subject));
  };
  append(property::all_cases());
  for (const auto add : {add_broadcasts, add_shapes, add_resizes, add_indices, add_reductions, add_normalizations,
                         add_products, add_convolutions, add_pools, add_attentions}) {
    CaseList list;
    add(list);
    append(list.take());
  }
  return all;
}

std::vector<OperatorKey> with_gradient() {
  std::vector<OperatorKey> keys;
  for (const ops::OpDef* op : ops::all_ops())
    if (op->gradient) keys.emplace_back(op->domain, op->type);
  return keys;
}

const std::map<OperatorKey, std::string>& without_float64() {
  static const std::map<OperatorKey, std::string> all = {{{"", "Attention"}, "its kernel computes float32 sums"}};
  return all;
}

bool is_refused(std::string_view message) {
  constexpr std::string_view kForms[] = {
      "the loss depends on its present keys or values, or its scores",
      "it reads a cache",
      "it crops while it resizes",
      "the length of its sequences is symbolic",
      "of an image is symbolic",
      "it resizes a symbolic extent",
      "it repeats elements of a symbolic extent",
  };
  return message.starts_with("[gradient]") && std::any_of(std::begin(kForms), std::end(kForms), [&](auto form) {
           return message.find(form) != std::string_view::npos;
         });
}

}  // namespace tessera::train
