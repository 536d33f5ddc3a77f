#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

/// The positions of the elements of Resize's result in its operand: shared by the operator's rule and its kernel.
namespace tessera {

/// Operand `place` of tessera.Resize (int64, known before a run), which makes a part of a result from a part of the
/// operand: five numbers for each dimension, the number of the first result element here, of those here, of all, and of
/// the first operand element here, and of all.
inline constexpr size_t kResizePlace = 4, kResizePlaceNumbers = 5;

/// Resize's attribute coordinate_transformation_mode.
enum class ResizePlaces {
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
  tf_half_pixel_for_nn,
  tf_crop_and_resize
};

/// The attribute's words; the first is its default.
inline constexpr std::array<std::pair<std::string_view, ResizePlaces>, 7> kResizePlaces = {
    {{"half_pixel", ResizePlaces::half_pixel},
     {"half_pixel_symmetric", ResizePlaces::half_pixel_symmetric},
     {"pytorch_half_pixel", ResizePlaces::pytorch_half_pixel},
     {"align_corners", ResizePlaces::align_corners},
     {"asymmetric", ResizePlaces::asymmetric},
     {"tf_half_pixel_for_nn", ResizePlaces::tf_half_pixel_for_nn},
     {"tf_crop_and_resize", ResizePlaces::tf_crop_and_resize}}};

inline std::optional<ResizePlaces> resize_places(std::string_view word) {
  for (const auto& [known, places] : kResizePlaces)
    if (known == word) return places;
  return std::nullopt;
}

/// The position in the operand, of `in` elements, of element `at` of the result, of `out` elements: in units of operand
/// elements, from the first one (ONNX's Resize, the formulas of coordinate_transformation_mode). For
/// tf_crop_and_resize, whose positions also depend on a region, that of half_pixel.
inline double resize_place(ResizePlaces how, int64_t at, int64_t in, int64_t out, double scale) {
  const double x = static_cast<double>(at), centre = (x + 0.5) / scale - 0.5;
  switch (how) {
    case ResizePlaces::asymmetric:
      return x / scale;
    case ResizePlaces::tf_half_pixel_for_nn:
      return (x + 0.5) / scale;
    case ResizePlaces::align_corners: {
      const double width = scale * static_cast<double>(in);  // before rounding down, as in the standard
      return out == 1 ? 0 : x * static_cast<double>(in - 1) / (width - 1);
    }
    case ResizePlaces::half_pixel_symmetric: {
      const double adjustment = static_cast<double>(out) / (scale * static_cast<double>(in));
      return static_cast<double>(in) / 2 * (1 - adjustment) + centre;
    }
    case ResizePlaces::pytorch_half_pixel:
      return out == 1 ? 0 : centre;
    case ResizePlaces::half_pixel:
    case ResizePlaces::tf_crop_and_resize:
      return centre;
  }
  return centre;
}

}  // namespace tessera
