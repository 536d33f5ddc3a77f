#include "tessera/kernels/cpu/elementwise/broadcast.h"

#include <fmt/ranges.h>

#include <array>

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

void Broadcast::for_each_row(int threads, Row row) const {
  for_ranges(count_, count_, threads, [&](int64_t begin, int64_t end) { walk(begin, end, row); });
}

void Broadcast::walk(int64_t begin, int64_t end, Row row) const {
  const int last = static_cast<int>(dims_.size()) - 1;
  const size_t operands = strides_.size();
  std::array<int64_t, max_operands> offsets{};
  check(operands <= max_operands, "a broadcast has at most max_operands operands");
  if (begin >= end) return;
  if (last == 0) {
    for (size_t k = 0; k < operands; ++k) offsets[k] = begin * strides_[k][0];
    row(offsets.data(), begin, end - begin);
    return;
  }

  std::array<int64_t, max_rank> index{};
  int64_t rest = begin;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % dims_[d];
    rest /= dims_[d];
    for (size_t k = 0; k < operands; ++k) offsets[k] += index[d] * strides_[k][d];
  }
  while (begin < end) {
    const int64_t n = std::min(dims_[last] - index[last], end - begin);
    row(offsets.data(), begin, n);
    begin += n;
    for (size_t k = 0; k < operands; ++k) offsets[k] -= index[last] * strides_[k][last];
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      for (size_t k = 0; k < operands; ++k) offsets[k] += strides_[k][d];
      if (++index[d] < dims_[d]) break;
      for (size_t k = 0; k < operands; ++k) offsets[k] -= dims_[d] * strides_[k][d];
      index[d] = 0;
    }
  }
}

}  // namespace tessera::kernels
