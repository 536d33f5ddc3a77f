#pragma once

#include <random>

#include "kernels/run_kernel.h"

namespace tessera::kernels {

/// Deterministic operands for tests; a failure is repeated by the same seed.
class RandomTensors {
 public:
  explicit RandomTensors(uint32_t seed) : engine_(seed) {}

  /// Integers in [-bound, bound], of which sums of products below 2^24 are exact in float32.
  std::vector<float> integers(int64_t count, int bound = 8) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(std::uniform_int_distribution(-bound, bound)(engine_));
    return values;
  }
  std::vector<float> normal(int64_t count, float deviation = 1) {
    std::vector<float> values(count);
    for (float& value : values) value = std::normal_distribution<float>(0, deviation)(engine_);
    return values;
  }
  Tensor integer_floats(Dims dims, int bound = 8) { return floats(dims, integers(count_of(dims), bound)); }
  Tensor normal_floats(Dims dims, float deviation = 1) { return floats(dims, normal(count_of(dims), deviation)); }

 private:
  std::mt19937 engine_;
};

/// The elements of a float32 tensor as T.
template <typename T>
Tensor converted(DType dtype, const Tensor& tensor) {
  std::vector<T> values;
  for (float value : tensor.as<float>()) values.push_back(static_cast<T>(value));
  return Tensor::of(dtype, tensor.dims, values);
}

inline Tensor random_bytes(DType dtype, const Dims& dims, unsigned seed) {
  Tensor tensor = Tensor::zeros(dtype, dims);
  std::mt19937 random(seed);
  for (size_t i = 0; i < tensor.bytes; ++i) tensor.mutable_data()[i] = static_cast<std::byte>(random());
  return tensor;
}

}  // namespace tessera::kernels
