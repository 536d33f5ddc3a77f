#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;

void add_along_axis(CaseList& list) {
  for (std::string_view type : {"Softmax", "LogSoftmax", "Hardmax", "LpNormalization"}) {
    auto reals = [](std::string_view extents) {
      return [extents](Builder& b) -> Operands { return {b.bind("b", 3).input(extents, Fill::reals)}; };
    };
    list.add(type, "rows", reals("4 6"), {axis(-1)}, kNormalized);
    list.add(type, "columns", reals("6 4 2"), {axis(0)}, kNormalized);
    list.add(type, "symbolic", reals("b 2 5"), {axis(2)}, kNormalized);
    list.add(type, "nothing", reals("0 4"), {axis(-1)}, kNormalized);
    list.add(type, "long rows", reals("3 70"), {axis(1)}, kNormalized);
    list.add(type, "fewer columns than ranks", reals("6 2"), {axis(1)}, kNormalized);
  }
  list.add(
      "LpNormalization", "absolute values", [](Builder& b) -> Operands { return {b.input("4 6", Fill::reals)}; },
      {axis(1), {"p", int64_t{1}}}, kNormalized);
  for (std::string_view type : {"Softmax", "LpNormalization"})
    list.add(
        type, "bfloat16", [](Builder& b) -> Operands { return {b.input("4 6", Fill::reals, DType::bfloat16)}; },
        {axis(-1)}, kBFloat16);
  list.add(
      "Hardmax", "ties", [](Builder& b) -> Operands { return {b.input("5 7", Fill::small)}; }, {axis(1)}, kExact);
}

void add_layer(CaseList& list) {
  auto scaled = [](std::string_view data, std::string_view scale, bool bias) {
    return [=](Builder& b) -> Operands {
      b.bind("b", 3);
      // What is ordered of a weight, nothing gathers, short as its rows may be.
      const bool symbolic = data.starts_with('b');
      Operands operands{symbolic ? b.input(data, Fill::reals) : b.weight(data, Fill::reals),
                        b.weight(scale, Fill::reals)};
      if (bias) operands.push_back(b.weight(scale, Fill::reals));
      return operands;
    };
  };
  list.add("LayerNormalization", "rows", scaled("4 6", "6", true), {}, kNormalized);
  list.add("LayerNormalization", "two dimensions", scaled("5 4 6", "4 6", false), {axis(1)}, kNormalized);
  list.add("LayerNormalization", "symbolic", scaled("b 2 6", "6", true), {axis(-1), {"epsilon", 0.01f}}, kNormalized);
  list.add("LayerNormalization", "with statistics", scaled("4 6", "6", true), {}, kNormalized, 3);
  list.add("LayerNormalization", "two dimensions with statistics", scaled("5 4 6", "4 6", true), {axis(1)}, kNormalized,
           3);
  list.add(
      "LayerNormalization", "a bias for all",
      [](Builder& b) -> Operands {
        Value* x = b.input("4 6", Fill::reals);
        return {x, b.weight("6", Fill::reals), b.weight("1", Fill::reals)};
      },
      {}, kNormalized);
  for (std::string_view type : {"LayerNormalization", "RMSNormalization"})
    list.add(
        type, "bfloat16",
        [](Builder& b) -> Operands {
          return {b.input("4 6", Fill::reals, DType::bfloat16), b.weight("6", Fill::reals, DType::bfloat16)};
        },
        {}, kBFloat16);
  list.add("RMSNormalization", "fewer columns than ranks", scaled("6 2", "2", false), {}, kNormalized);
  list.add("RMSNormalization", "rows", scaled("4 6", "6", false), {}, kNormalized);
  list.add("RMSNormalization", "two dimensions", scaled("5 4 6", "4 6", false), {axis(-2)}, kNormalized);
}

void add_channels(CaseList& list) {
  list.add("BatchNormalization", "given statistics", [](Builder& b) -> Operands {
    auto channel = [&](Fill fill) { return b.weight("6", fill); };
    return {b.input("2 6 3 2", Fill::reals), channel(Fill::reals), channel(Fill::reals), channel(Fill::reals),
            channel(Fill::above_one)};
  });
  list.add("BatchNormalization", "without spatial dimensions", [](Builder& b) -> Operands {
    return {b.input("4 6", Fill::reals), b.weight("6"), b.weight("6"), b.weight("6"), b.weight("6", Fill::positive)};
  });
  auto scaled = [](std::string_view data) {
    return [=](Builder& b) -> Operands {
      return {b.weight(data, Fill::reals), b.weight("6", Fill::reals), b.weight("6", Fill::reals)};
    };
  };
  list.add("InstanceNormalization", "images", scaled("2 6 3 4"), {}, kNormalized);
  list.add("GroupNormalization", "images", scaled("2 6 3 4"), {{"num_groups", int64_t{3}}}, kNormalized);
  list.add("GroupNormalization", "groups of one channel", scaled("2 6 5"), {{"num_groups", int64_t{6}}}, kNormalized);
  list.add(
      "GroupNormalization", "float16",
      [](Builder& b) -> Operands {
        const auto channel = [&] { return b.weight("4", Fill::integers, DType::float16); };
        return {b.input("2 4 3", Fill::reals, DType::float16), channel(), channel()};
      },
      {{"num_groups", int64_t{2}}}, kBFloat16);
  list.add("GroupNormalization", "one group", scaled("3 6 5"), {{"num_groups", int64_t{1}}}, kNormalized);
  list.add(
      "MeanVarianceNormalization", "channels", [](Builder& b) -> Operands { return {b.input("2 6 3 4", Fill::reals)}; },
      {}, kNormalized);
  list.add(
      "MeanVarianceNormalization", "other axes", [](Builder& b) -> Operands { return {b.input("4 6 3", Fill::reals)}; },
      {{"axes", std::vector<int64_t>{-1}}}, kNormalized);
}

}  // namespace

std::vector<Subject> normalization_cases() {
  CaseList list;
  add_along_axis(list);
  add_layer(list);
  add_channels(list);
  return list.take();
}

}  // namespace tessera::property
