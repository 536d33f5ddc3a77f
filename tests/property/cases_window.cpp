#include <fmt/format.h>

#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;
using Ints = std::vector<int64_t>;

Attribute same_size(bool upper) {
  return {"auto_pad", std::string(upper ? "SAME_UPPER" : "SAME_LOWER")};
}

// Shards of 1 to 5 ranks: windows reach over several of them, and some have no element.
void add_convolutions_of_parts(CaseList& list) {
  auto convolution = [&](std::string_view type, std::string_view what, std::string_view data, std::string_view weight,
                         std::vector<Attribute> attributes) {
    list.add(
        type, what,
        [=](Builder& b) -> Operands {
          b.bind("s", 7);
          return {b.input(data), b.weight(weight)};
        },
        std::move(attributes));
  };
  convolution("Conv", "windows wider than shards", "1 2 9", "2 2 7", {{"pads", Ints{3, 3}}});
  convolution("Conv", "more padding than elements", "1 1 2", "2 1 3", {{"pads", Ints{4, 5}}});
  convolution("Conv", "gaps between windows", "1 2 11", "2 2 2", {{"strides", Ints{4}}});
  convolution("Conv", "pointwise with strides", "1 2 9 4", "3 2 1 1", {{"strides", Ints{2, 3}}});
  convolution("Conv", "dilated, strided, padded", "1 2 13 8", "2 2 3 2",
              {{"strides", Ints{3, 1}}, {"dilations", Ints{2, 3}}, {"pads", Ints{2, 1, 1, 2}}});
  convolution("Conv", "same, upper, strided", "1 2 8 7", "2 2 3 4", {same_size(true), {"strides", Ints{2, 2}}});
  convolution("Conv", "same, lower", "1 2 6 5", "2 2 2 4", {same_size(false)});
  convolution("Conv", "volumes in groups", "1 4 4 3 5", "4 2 3 2 3", {{"group", int64_t{2}}});
  convolution("Conv", "padded volumes", "1 2 4 3 5", "2 2 3 2 3", {{"pads", Ints(6, 1)}});
  convolution("Conv", "a symbolic length", "1 2 s", "3 2 3", {{"pads", Ints{1, 1}}});
  convolution("Conv", "a symbolic length with strides", "2 2 s", "3 2 3", {{"pads", Ints{2, 0}}, {"strides", Ints{2}}});
  convolution("Conv", "same, of a symbolic length", "1 2 s", "3 2 3", {same_size(true)});
  convolution("Conv", "one window", "1 2 6", "2 2 6", {});
  convolution("ConvTranspose", "windows wider than shards", "1 2 5", "2 2 7", {{"pads", Ints{2, 3}}});
  convolution("ConvTranspose", "strided and dilated", "1 2 5 4", "2 3 3 2",
              {{"strides", Ints{2, 3}}, {"dilations", Ints{2, 2}}, {"output_padding", Ints{1, 0}}});
  convolution("ConvTranspose", "gaps between windows", "1 2 4", "2 2 1", {{"strides", Ints{3}}});
  convolution("ConvTranspose", "a given length", "1 2 4", "2 2 3", {{"strides", Ints{2}}, {"output_shape", Ints{8}}});
  convolution("ConvTranspose", "a symbolic length", "1 2 s", "2 3 4", {{"strides", Ints{2}}, {"pads", Ints{1, 1}}});
}

void add_poolings_of_parts(CaseList& list) {
  const auto image = [](Builder& b) -> Operands { return {b.input("1 2 9 7")}; };
  const Attribute window{"kernel_shape", Ints{3, 2}}, strides{"strides", Ints{2, 2}}, ceiling{"ceil_mode", int64_t{1}};
  const Attribute pads{"pads", Ints{1, 1, 2, 0}}, dilations{"dilations", Ints{2, 3}};
  const Attribute counting{"count_include_pad", int64_t{1}};
  for (std::string_view type : {"MaxPool", "AveragePool", "LpPool"}) {
    const Bound bound = type == "MaxPool" ? kExact : kReordered;
    list.add(type, "with a last window that overhangs", image, {window, strides, pads, ceiling}, bound);
    list.add(type, "dilated", image, {window, dilations, pads}, bound);
    list.add(type, "same, lower", image, {window, strides, same_size(false)}, bound);
    list.add(
        type, "windows wider than shards", [](Builder& b) -> Operands { return {b.input("1 2 6")}; },
        {{"kernel_shape", Ints{5}}, {"pads", Ints{2, 2}}}, bound);
    list.add(
        type, "a symbolic length", [](Builder& b) -> Operands { return {b.bind("s", 7).input("2 1 s")}; },
        {{"kernel_shape", Ints{3}}, {"pads", Ints{1, 1}}, {"strides", Ints{2}}}, bound);
  }
  list.add("AveragePool", "counting the padding and not what is beyond", image,
           {window, strides, pads, ceiling, counting}, kReordered);
  list.add("MaxPool", "indices of windows that overhang", image, {window, strides, pads, ceiling}, kExact, 2);
  list.add("MaxPool", "indices by columns, dilated", image, {window, dilations, {"storage_order", int64_t{1}}}, kExact,
           2);
}

void add_extents_of_parts(CaseList& list) {
  const auto slice = [&](std::string_view what, Ints starts, Ints ends, Ints axes, Ints steps) {
    list.add("Slice", what, [=](Builder& b) -> Operands {
      return {b.input("11 6"), b.ints(starts), b.ints(ends), b.ints(axes), b.ints(steps)};
    });
  };
  slice("every third", {1}, {11}, {0}, {3});
  slice("backwards", {-2}, {0}, {0}, {-1});
  slice("every second, backwards", {10}, {-12}, {0}, {-2});
  slice("both dimensions", {3, 1}, {9, 5}, {0, 1}, {1, 2});
  slice("the last", {-1}, {11}, {0}, {1});
  list.add("Pad", "more than there is", [](Builder& b) -> Operands { return {b.input("3 4"), b.ints({4, 0, 5, 1})}; });
  list.add("Pad", "cut at one end, padded at the other", [](Builder& b) -> Operands {
    return {b.input("9 4"), b.ints({-2, 0, 3, -1})};
  });
  const auto padded = [&](std::string_view mode, std::string_view what, std::string_view data, Ints pads) {
    list.add("Pad", fmt::format("{}, {}", mode, what),
             [=](Builder& b) -> Operands {
               return {b.bind("s", 7).input(data), b.ints(pads)};
             },
             {{"mode", std::string(mode)}});
  };
  padded("edge", "more than there is", "3 4", {4, 0, 5, 1});
  padded("edge", "one end only", "7 2", {0, 1, 3, 0});
  padded("edge", "a symbolic length", "s 2", {2, 0, 1, 0});
  padded("reflect", "as much as there is", "6 4", {5, 0, 5, 3});
  padded("reflect", "one end only", "7 2", {2, 0, 0, 1});
  const auto joined = [&](std::string_view what, std::vector<std::string> pieces) {
    list.add("Concat", what,
             [=](Builder& b) {
               b.bind("s", 7);
               Operands operands;
               for (const std::string& piece : pieces) operands.push_back(b.input(piece));
               return operands;
             },
             {axis(0)});
  };
  joined("unequal pieces", {"7 2", "1 2", "4 2"});
  joined("a short piece in front", {"2 3", "9 3"});
  joined("an empty piece", {"5 2", "0 2", "3 2"});
  joined("a piece of symbolic length", {"3 2", "s 2"});
  list.add("Pad", "a symbolic length", [](Builder& b) -> Operands {
    return {b.bind("s", 7).input("s 2"), b.ints({2, 0, 1, 0})};
  });
}

}  // namespace

std::vector<Subject> window_cases() {
  CaseList list;
  add_convolutions_of_parts(list);
  add_poolings_of_parts(list);
  add_extents_of_parts(list);
  return list.take();
}

}  // namespace tessera::property
