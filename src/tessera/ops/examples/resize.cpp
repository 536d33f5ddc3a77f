#include <fmt/format.h>

#include "tessera/ops/examples/examples.h"

namespace tessera::ops {
namespace {

using namespace example;
using Ints = std::vector<int64_t>;

Attribute mode(const char* name) {
  return {"mode", std::string(name)};
}
Attribute places_by(const char* name) {
  return {"coordinate_transformation_mode", std::string(name)};
}

// A part is enlarged as the whole is, if the ranks know the elements around theirs.
Example enlarged(const char* how, const char* places, float times, const char* rounding) {
  return {fmt::format("{}, {} times, {}", how, times, places),
          {input("1 2 5 3", reals), left_out(), numbers({1, 1, times, 2})},
          {mode(how), places_by(places), {"nearest_mode", std::string(rounding)}}};
}

// By other factors, a part is made at the places that its elements have in the whole.
Example resized(const char* what, const char* how, const char* places, int64_t height, int64_t width,
                const char* more = nullptr) {
  Example made{fmt::format("{}, {}, {}", how, places, what),
               {input("1 2 9 6", reals), left_out(), left_out(), ints({1, 2, height, width})},
               {mode(how), places_by(places)}};
  if (more) made.attributes.push_back({more, int64_t{1}});
  return made;
}

Example of_region(const char* how, const std::vector<float>& corners) {
  return {std::string(how) + ", of a region",
          {input("2 3 4 4", reals), numbers(corners), left_out(), ints({3, 4})},
          {mode(how), places_by("tf_crop_and_resize"), {"extrapolation_value", 9.0F}, {"axes", Ints{2, 3}}},
          chained};
}

}  // namespace

std::vector<Example> resize_examples(std::string_view) {
  return {
      {"nearest, by scales", {input("2 3 4 4"), left_out(), numbers({1, 1, 2, 2})}, {mode("nearest")}},
      {"linear, to sizes",
       {input("2 3 4 4", reals), left_out(), left_out(), ints({2, 3, 6, 5})},
       {mode("linear")},
       chained},
      enlarged("nearest", "half_pixel", 3, "round_prefer_floor"),
      enlarged("nearest", "asymmetric", 2, "floor"),
      enlarged("nearest", "tf_half_pixel_for_nn", 2, "ceil"),
      enlarged("linear", "half_pixel", 2, "floor"),
      enlarged("linear", "align_corners", 2, "floor"),
      enlarged("linear", "asymmetric", 3, "floor"),
      enlarged("cubic", "half_pixel_symmetric", 4, "floor"),
      resized("smaller", "linear", "half_pixel", 4, 5),
      resized("smaller, smoothed", "linear", "half_pixel", 4, 3, "antialias"),
      resized("larger", "linear", "align_corners", 16, 7),
      resized("larger in one dimension", "cubic", "asymmetric", 14, 6),
      resized("larger and smaller", "cubic", "pytorch_half_pixel", 13, 4, "exclude_outside"),
      resized("smaller, smoothed", "cubic", "half_pixel", 3, 4, "antialias"),
      resized("twice and smaller", "linear", "half_pixel_symmetric", 18, 4),
      resized("smaller", "nearest", "half_pixel", 4, 5),
      resized("larger", "nearest", "tf_half_pixel_for_nn", 11, 8),
      resized("much smaller", "nearest", "asymmetric", 2, 2),
      {"linear, by scales that do not divide",
       {input("1 2 9 5", reals), left_out(), numbers({1, 1, 0.6F, 1.3F})},
       {mode("linear"), places_by("align_corners")}},
      {"linear, twice a symbolic size", {input("1 2 s=5", reals), left_out(), numbers({1, 1, 2})}, {mode("linear")}},
      of_region("linear", {0.25F, 0, 0.75F, 1}),
      of_region("nearest", {-0.5F, 0.5F, 0.5F, 1.5F}),
  };
}

std::vector<Example> resize_part_examples(std::string_view) {
  // Results 2 to 4 of 7, from elements 1 to 4 of 5; the second dimension is whole.
  return {{"a part",
           {input("4 3", reals), left_out(), left_out(), left_out(), ints({2, 3, 7, 1, 5, 0, 2, 2, 0, 3})},
           {mode("linear")}}};
}

}  // namespace tessera::ops
