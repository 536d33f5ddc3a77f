#include "tessera/kernels/view.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tessera/kernels/axes.h"

namespace tessera::kernels {

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

bool View::is_dense() const {
  if (count_of(dims) == 0) return true;
  const Dims dense = dense_strides(dims);
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] != 1 && strides[d] != dense[d]) return false;
  return true;
}

View view_of(const TensorDesc& desc) {
  return {desc.dims, desc.strides.empty() ? dense_strides(desc.dims) : desc.strides, 0};
}

std::optional<View> reshaped(const View& view, const Dims& dims) {
  if (view.is_dense() || count_of(dims) == 0) return View{dims, dense_strides(dims), view.offset};
  // From the last dimension on: distributes runs of old dimensions that stride as one to runs of new ones.
  View result{dims, Dims(dims.size(), 0), view.offset};
  size_t old = view.dims.size();
  int64_t left = 1, stride = 1;  // elements of the run that are not distributed yet, and their stride
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d] == 1) continue;
    while (old > 0 && left == 1) {
      --old;
      left = view.dims[old];
      stride = view.strides[old];
    }
    while (old > 0 && left % dims[d] != 0 && (view.dims[old - 1] == 1 || view.strides[old - 1] == stride * left))
      left *= view.dims[--old];
    if (left % dims[d] != 0) return std::nullopt;
    result.strides[d] = stride;
    stride *= dims[d];
    left /= dims[d];
  }
  return result;
}

View permuted(const View& view, const std::vector<int64_t>& permutation) {
  View result{{}, {}, view.offset};
  for (int64_t axis : permutation) {
    result.dims.push_back(view.dims[axis]);
    result.strides.push_back(view.strides[axis]);
  }
  return result;
}

View transposed(const Node& node, const View& operand) {
  const size_t rank = operand.dims.size();
  std::vector<int64_t> permutation(rank);
  std::iota(permutation.rbegin(), permutation.rend(), 0);
  permutation = node.get_ints("perm", permutation);
  std::vector<bool> seen(rank, false);
  bool valid = permutation.size() == rank;
  for (int64_t axis : permutation) {
    valid = valid && axis >= 0 && axis < static_cast<int64_t>(rank) && !seen[axis];
    if (valid) seen[axis] = true;
  }
  if (!valid)
    fail("kernel", "{}: perm [{}] does not name each of {} dimensions once", node.label(), fmt::join(permutation, ", "),
         rank);
  return permuted(operand, permutation);
}

View expanded(const Node& node, const View& operand, const Dims& dims) {
  const Dims& from = operand.dims;
  View result{dims, Dims(dims.size(), 0), operand.offset};
  bool fits = from.size() <= dims.size();
  for (size_t i = 0; fits && i < from.size(); ++i) {
    const size_t own = from.size() - 1 - i, at = dims.size() - 1 - i;
    fits = from[own] == dims[at] || from[own] == 1;
    if (from[own] != 1) result.strides[at] = operand.strides[own];
  }
  if (!fits)
    fail("kernel", "{}: [{}] does not expand to [{}]", node.label(), fmt::join(from, ", "), fmt::join(dims, ", "));
  return result;
}

View sliced(const Node& node, const View& operand, const Slices& slices) {
  View result = operand;
  const auto& [starts, ends, given_axes, given_steps] = slices;
  std::vector<int64_t> axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (given_axes) axes = *given_axes;
  if (given_steps) steps = *given_steps;
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    fail("kernel", "{}: {} starts, {} ends, {} axes and {} steps; their numbers must be equal", node.label(),
         starts.size(), ends.size(), axes.size(), steps.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = resolve_axis(node, axes[i], static_cast<int64_t>(operand.dims.size()));
    const int64_t extent = operand.dims[axis], step = steps[i];
    if (step == 0) fail("kernel", "{}: a step of zero along axis {}", node.label(), axis);
    // Positions go from 0 to extent, or downwards from extent - 1 to -1.
    const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? extent : extent - 1;
    auto place = [&](int64_t position, int64_t low) {
      return std::clamp(position < 0 ? position + extent : position, low, std::max(low, highest));
    };
    const int64_t start = place(starts[i], 0);
    const int64_t end = place(ends[i], lowest);
    const int64_t distance = step > 0 ? end - start : start - end;
    const int64_t stride_length = step > 0 ? step : -std::max(step, -std::numeric_limits<int64_t>::max());
    result.dims[axis] = extent == 0 || distance <= 0 ? 0 : (distance - 1) / stride_length + 1;
    if (result.dims[axis] == 0) continue;
    result.offset += start * result.strides[axis];
    result.strides[axis] *= result.dims[axis] == 1 ? 1 : step;
  }
  return result;
}

}  // namespace tessera::kernels
