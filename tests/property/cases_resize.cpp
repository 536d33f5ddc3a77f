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
