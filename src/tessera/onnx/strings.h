#pragma once

#include <string>
#include <vector>

#include "tessera/ir/tensor.h"

namespace tessera {

/// String tensors (DType::string) hold count + 1 uint64 offsets, then the characters of all elements end to end:
/// element i is the bytes from offset i to offset i + 1, counted from the first character.
Tensor string_tensor(Dims dims, const std::vector<std::string>& elements);

/// The elements of a string tensor.
std::vector<std::string> strings_of(const Tensor& tensor);

}  // namespace tessera
