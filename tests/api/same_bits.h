#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "tessera/tessera.h"

namespace tessera::test {

/// One thread per rank, so that sums have one order.
inline SessionOptions one_thread() {
  SessionOptions options;
  options.threads_per_rank = 1;
  return options;
}

/// The same names, extents and bits.
inline void expect_same(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    const Tensor& other = b.at(name);
    ASSERT_EQ(tensor.dims, other.dims) << name;
    EXPECT_EQ(std::memcmp(tensor.data, other.data, tensor.bytes), 0) << name;
  }
}

}  // namespace tessera::test
