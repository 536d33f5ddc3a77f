#include "tessera/checkpoint/tensor_type.h"

#include <algorithm>

#include "tessera/ir/hash.h"

namespace tessera::checkpoint {

Region common(const Region& a, const Region& b) {
  Region both = a;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    both.begin[d] = std::max(a.begin[d], b.begin[d]);
    const int64_t end = std::min(a.begin[d] + a.extent[d], b.begin[d] + b.extent[d]);
    both.extent[d] = std::max<int64_t>(end - both.begin[d], 0);
  }
  return both;
}

std::string fingerprint_of(std::span<const TensorType> tensors) {
  std::vector<const TensorType*> sorted;
  for (const TensorType& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->name < b->name; });
  Hash hash;
  for (const TensorType* tensor : sorted) {
    hash.add(tensor->name);
    hash.add(name_of(tensor->dtype));
    hash.add(tensor->dims.size());
    for (int64_t extent : tensor->dims) hash.add(static_cast<uint64_t>(extent));
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace tessera::checkpoint
