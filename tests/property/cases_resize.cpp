#include <fmt/format.h>

#include "property/cases.h"

namespace tessera::property {

using Operands = std::vector<Value*>;

std::vector<Subject> resize_cases() {
  CaseList list;
  auto scales = [](Builder& b, std::vector<float> values) {
    return b.constant(Tensor::of<float>(DType::float32, {static_cast<int64_t>(values.size())}, values));
  };
  list.add("Resize", "nearest, by scales",
           [&](Builder& b) -> Operands {
             return {b.input("2 3 4 4"), nullptr, scales(b, {1, 1, 2, 2})};
           },
           {{"mode", std::string("nearest")}});
  list.add(
      "Resize", "linear, to sizes",
      [&](Builder& b) -> Operands {
        return {b.input("2 3 4 4", Fill::reals), nullptr, nullptr, b.ints({2, 3, 6, 5})};
      },
      {{"mode", std::string("linear")}}, kChain);
  // A part is enlarged as the whole is, if the ranks know the elements around theirs.
  const auto enlarged = [&](const char* mode, const char* places, float times, const char* rounding) {
    list.add("Resize", fmt::format("{}, {} times, {}", mode, times, places),
             [=](Builder& b) -> Operands {
               return {b.input("1 2 5 3", Fill::reals), nullptr, scales(b, {1, 1, times, 2})};
             },
             {{"mode", std::string(mode)},
              {"coordinate_transformation_mode", std::string(places)},
              {"nearest_mode", std::string(rounding)}});
  };
  enlarged("nearest", "half_pixel", 3, "round_prefer_floor");
  enlarged("nearest", "asymmetric", 2, "floor");
  enlarged("nearest", "tf_half_pixel_for_nn", 2, "ceil");
  enlarged("linear", "half_pixel", 2, "floor");
  enlarged("linear", "align_corners", 2, "floor");
  enlarged("linear", "asymmetric", 3, "floor");
  enlarged("cubic", "half_pixel_symmetric", 4, "floor");
  // By other factors, a part is made at the places that its elements have in the whole.
  const auto resized = [&](std::string what, const char* mode, const char* places, std::vector<int64_t> sizes,
                           std::vector<Attribute> more = {}) {
    std::vector<Attribute> attributes = {{"mode", std::string(mode)},
                                         {"coordinate_transformation_mode", std::string(places)}};
    attributes.insert(attributes.end(), more.begin(), more.end());
    list.add(
        "Resize", fmt::format("{}, {}, {}", mode, places, what),
        [=](Builder& b) -> Operands {
          return {b.input("1 2 9 6", Fill::reals), nullptr, nullptr, b.ints({1, 2, sizes[0], sizes[1]})};
        },
        std::move(attributes));
  };
  const Attribute smooth{"antialias", int64_t{1}}, inside{"exclude_outside", int64_t{1}};
  resized("smaller", "linear", "half_pixel", {4, 5});
  resized("smaller, smoothed", "linear", "half_pixel", {4, 3}, {smooth});
  resized("larger", "linear", "align_corners", {16, 7});
  resized("larger in one dimension", "cubic", "asymmetric", {14, 6});
  resized("larger and smaller", "cubic", "pytorch_half_pixel", {13, 4}, {inside});
  resized("smaller, smoothed", "cubic", "half_pixel", {3, 4}, {smooth});
  resized("twice and smaller", "linear", "half_pixel_symmetric", {18, 4});
  resized("smaller", "nearest", "half_pixel", {4, 5});
  resized("larger", "nearest", "tf_half_pixel_for_nn", {11, 8});
  resized("much smaller", "nearest", "asymmetric", {2, 2});
  list.add("Resize", "linear, by scales that do not divide",
           [=](Builder& b) -> Operands {
             return {b.input("1 2 9 5", Fill::reals), nullptr, scales(b, {1, 1, 0.6f, 1.3f})};
           },
           {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("align_corners")}});
  // Results 2 to 4 of 7, from elements 1 to 4 of 5; the second dimension is whole.
  list.add(
      "Resize", "a part",
      [=](Builder& b) -> Operands {
        return {b.input("4 3", Fill::reals), nullptr, nullptr, nullptr, b.ints({2, 3, 7, 1, 5, 0, 2, 2, 0, 3})};
      },
      {{"mode", std::string("linear")}}, kExact, 1, "tessera");
  list.add("Resize", "linear, twice a symbolic size",
           [=](Builder& b) -> Operands {
             return {b.bind("s", 5).input("1 2 s", Fill::reals), nullptr, scales(b, {1, 1, 2})};
           },
           {{"mode", std::string("linear")}});
  const auto region = [&](const char* mode, std::vector<float> corners) {
    list.add(
        "Resize", std::string(mode) + ", of a region",
        [&](Builder& b) -> Operands {
          return {b.input("2 3 4 4", Fill::reals), b.constant(Tensor::of<float>(DType::float32, {4}, corners)), nullptr,
                  b.ints({3, 4})};
        },
        {{"mode", std::string(mode)},
         {"coordinate_transformation_mode", std::string("tf_crop_and_resize")},
         {"extrapolation_value", 9.0f},
         {"axes", std::vector<int64_t>{2, 3}}},
        kChain);
  };
  region("linear", {0.25, 0, 0.75, 1});
  region("nearest", {-0.5, 0.5, 0.5, 1.5});
  return list.take();
}

}  // namespace tessera::property
