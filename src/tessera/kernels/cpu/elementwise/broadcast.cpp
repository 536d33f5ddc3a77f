#include "tessera/kernels/cpu/elementwise/broadcast.h"

#include <fmt/ranges.h>

namespace tessera::kernels {
namespace {

std::vector<View> dense(const std::vector<Dims>& operands) {
  std::vector<View> views;
  for (const Dims& dims : operands) views.push_back(View::dense(dims));
  return views;
}

}  // namespace

Broadcast::Broadcast(const Node& node, const Dims& result, const std::vector<Dims>& operands)
    : Broadcast(node, result, dense(operands)) {}

Broadcast::Broadcast(const Node& node, const Dims& result, const std::vector<View>& operands)
    : count_(count_of(result)), strides_(operands.size()) {
  const size_t rank = result.size();
  if (rank > max_rank) fail("kernel", "{} has {} dimensions; at most {} are supported", node.label(), rank, max_rank);
  std::vector<Dims> full(operands.size(), Dims(rank, 0));
  for (size_t k = 0; k < operands.size(); ++k) {
    const Dims& dims = operands[k].dims;
    bool fits = dims.size() <= rank;
    for (size_t i = 0; fits && i < dims.size(); ++i) {
      const size_t own = dims.size() - 1 - i, at = rank - 1 - i;
      fits = dims[own] == result[at] || dims[own] == 1;
      full[k][at] = dims[own] == 1 ? 0 : operands[k].strides[own];
    }
    if (!fits)
      fail("kernel", "{}: operand {} of extents [{}] does not broadcast to [{}]", node.label(), k,
           fmt::join(dims, ", "), fmt::join(result, ", "));
  }
  // A dimension merges with the one minor to it if every operand strides over both as over one.
  for (size_t d = rank; d-- > 0;) {
    if (result[d] == 1) continue;
    bool joins = !dims_.empty();
    for (size_t k = 0; joins && k < operands.size(); ++k) joins = full[k][d] == strides_[k].front() * dims_.front();
    if (joins) {
      dims_.front() *= result[d];
      continue;
    }
    dims_.insert(dims_.begin(), result[d]);
    for (size_t k = 0; k < operands.size(); ++k) strides_[k].insert(strides_[k].begin(), full[k][d]);
  }
  if (dims_.empty()) {
    dims_ = {1};
    for (Dims& strides : strides_) strides = {0};
  }
}

}  // namespace tessera::kernels
