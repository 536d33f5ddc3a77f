#pragma once

#include <string>

#include "tessera/ir/tensor.h"

namespace tessera::kernels {

/// "[2, 3, 4]", for messages.
inline std::string text_of(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace tessera::kernels
