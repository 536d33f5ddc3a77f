#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

using namespace example;

std::vector<Example> constant_examples(std::string_view) {
  const Tensor matrix = Tensor::of<float>(
      DType::float32, {4, 6}, {-6, -6, -1, -8, -3, 7, 0, -7, 1, 2, -7, 1, 5, -5, -1, -4, -4, 5, 0, -4, -4, 4, -1, -3});
  return {{"a matrix", {}, {{"value", matrix}}}, {"a list", {}, {{"value_ints", std::vector<int64_t>{3, 1, 2, 5}}}}};
}

std::vector<Example> constant_of_shape_examples(std::string_view) {
  return {
      {"sevens", {ints({4, 6})}, {{"value", Tensor::of<int32_t>(DType::int32, {1}, {7})}}},
      {"float zeros", {ints({12})}},
  };
}

std::vector<Example> range_examples(std::string_view) {
  return {
      {"counting", {integer(0), integer(12), integer(1)}},
      {"down in steps", {integer(9), integer(-4), integer(-2)}},
      {"floats", {number(0), number(3), number(0.5F)}},
  };
}

std::vector<Example> eye_like_examples(std::string_view) {
  return {{"a diagonal above", {input("4 6")}, {{"k", int64_t{1}}}}};
}

}  // namespace tessera::ops
