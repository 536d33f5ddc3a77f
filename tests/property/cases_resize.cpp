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
