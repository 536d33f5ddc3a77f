#pragma once

#include <span>
#include <string>

#include "tessera/ir/tensor.h"

namespace tessera::checkpoint {

/// A tensor as the model knows it, whole.
struct TensorType {
  std::string name;
  DType dtype = DType::undefined;
  Dims dims;

  bool operator==(const TensorType&) const = default;
};

/// A rectangular part of a tensor.
struct Region {
  Dims begin, extent;

  int64_t count() const { return count_of(extent); }
  bool operator==(const Region&) const = default;

  static Region whole(const Dims& dims) { return {Dims(dims.size(), 0), dims}; }
};

/// The intersection of both regions; extents of 0 if it is empty.
Region common(const Region& a, const Region& b);

/// A short text that two models share if they have the same tensors, by name, type and extents.
std::string fingerprint_of(std::span<const TensorType> tensors);

}  // namespace tessera::checkpoint
