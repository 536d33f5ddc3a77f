#pragma once

#include "tessera/ir/tensor.h"

namespace tessera {

/// Whether the tensor's elements can be read in place.
bool is_aligned(const Tensor& tensor);

/// `tensor` if its elements can be read in place, else a copy on the heap. The data of a state that was read from a
/// file start at the file's offset, so that a plan need not touch them; code that reads their elements, instead of
/// copying their bytes, aligns them first. All other tensors are aligned.
Tensor aligned(Tensor tensor);

}  // namespace tessera
