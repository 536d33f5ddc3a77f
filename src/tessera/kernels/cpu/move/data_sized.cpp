#include "tessera/kernels/data_sized.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/dispatch.h"

namespace tessera::kernels {
namespace {

using Results = std::vector<Tensor>;

Tensor int64s(Dims dims, const std::vector<int64_t>& elements) {
  return Tensor::of(DType::int64, std::move(dims), elements);
}

bool has(const std::vector<Tensor>& operands, size_t index) {
  return index < operands.size() && operands[index].dtype != DType::undefined;
}

const Tensor& operand(const Node& node, const std::vector<Tensor>& operands, size_t index) {
  if (!has(operands, index)) fail("run", "{}: operand {} is missing", node.label(), index);
  return operands[index];
}

// The one element of an optional operand.
template <typename T>
T scalar(const Node& node, const std::vector<Tensor>& operands, size_t index, T otherwise) {
  if (!has(operands, index)) return otherwise;
  const Tensor& tensor = operands[index];
  if (tensor.dtype != dtype_of<T>() || tensor.count() != 1)
    fail("run", "{}: operand {} must be one element of type {}, but is {} of {}", node.label(), index,
         name_of(dtype_of<T>()), tensor.count(), name_of(tensor.dtype));
  return tensor.as<T>()[0];
}

/// A tensor as [outer, extent, inner] around one dimension.
struct Along {
  int64_t outer = 1, extent = 1, inner = 1;

  Along(const Node& node, const Dims& dims, int64_t axis) {
    const auto rank = static_cast<int64_t>(dims.size());
    if (axis < -rank || axis >= rank)
      fail("run", "{}: axis {} is not in the range of {} dimensions", node.label(), axis, rank);
    dimension = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    for (size_t d = 0; d < dims.size(); ++d) (d < dimension ? outer : d > dimension ? inner : extent) *= dims[d];
  }
  size_t dimension = 0;
};

/// The slices `chosen` of one dimension, in that order.
Tensor take(const Tensor& from, const Along& along, const std::vector<int64_t>& chosen) {
  Dims dims = from.dims;
  dims[along.dimension] = static_cast<int64_t>(chosen.size());
  Tensor taken = Tensor::zeros(from.dtype, dims);
  const size_t row = bytes_of(from.dtype, along.inner);
  std::byte* to = taken.mutable_data();
  for (int64_t o = 0; o < along.outer; ++o)
    for (int64_t which : chosen) {
      std::copy_n(from.data + static_cast<size_t>(o * along.extent + which) * row, row, to);
      to += row;
    }
  return taken;
}

Tensor flat(Tensor tensor) {
  tensor.dims = {tensor.count()};
  return tensor;
}

// The coordinates of all elements that are not zero, one column each.
Results non_zero(const Node& node, const std::vector<Tensor>& operands) {
  const Tensor& x = operand(node, operands, 0);
  std::vector<int64_t> found;
  dispatch(AllTypes(), node, x.dtype, [&]<typename T>() {
    const auto elements = x.as<T>();
    for (size_t i = 0; i < elements.size(); ++i)
      if (load(elements[i]) != Compute<T>(0)) found.push_back(static_cast<int64_t>(i));
  });
  const auto rank = static_cast<int64_t>(x.dims.size()), count = static_cast<int64_t>(found.size());
  std::vector<int64_t> coordinates(static_cast<size_t>(rank * count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = found[static_cast<size_t>(i)];
    for (int64_t d = rank; d-- > 0;) {
      const int64_t extent = x.dims[static_cast<size_t>(d)];
      coordinates[static_cast<size_t>(d * count + i)] = rest % extent;
      rest /= extent;
    }
  }
  return {int64s({rank, count}, coordinates)};
}

// The slices of one dimension, or the elements if none is named, where the condition holds.
Results compress(const Node& node, const std::vector<Tensor>& operands) {
  const Tensor &given = operand(node, operands, 0), &condition = operand(node, operands, 1);
  if (condition.dtype != DType::boolean || condition.dims.size() != 1)
    fail("run", "{}: its condition must be a list of booleans", node.label());
  if (bits_of(given.dtype) % 8 != 0 || bits_of(given.dtype) == 0) fail_dtype(node, given.dtype);
  const auto* axis = node.get<int64_t>("axis");
  const Tensor x = axis ? given : flat(given);
  const Along along(node, x.dims, axis ? *axis : 0);
  const auto holds = condition.as<uint8_t>();
  if (static_cast<int64_t>(holds.size()) > along.extent)
    fail("run", "{}: its condition has {} elements for a dimension of {}", node.label(), holds.size(), along.extent);
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < holds.size(); ++i)
    if (holds[i]) chosen.push_back(static_cast<int64_t>(i));
  return {take(x, along, chosen)};
}

// The distinct slices of one dimension, or elements if none is named; for each, where it comes first and how often; and
// for each slice, which of them it is.
Results unique(const Node& node, const std::vector<Tensor>& operands) {
  const Tensor& given = operand(node, operands, 0);
  const auto* axis = node.get<int64_t>("axis");
  const Tensor x = axis ? given : flat(given);
  const Along along(node, x.dims, axis ? *axis : 0);
  std::vector<int64_t> order(static_cast<size_t>(along.extent));
  std::iota(order.begin(), order.end(), 0);
  std::vector<int64_t> first, inverse(order.size()), counts;  // of each distinct one, in sorted order
  dispatch(AllTypes(), node, x.dtype, [&]<typename T>() {
    const T* elements = x.as<T>().data();
    // -1, 0 or 1; NaN is larger than all numbers, and equal to itself.
    const auto compare = [&](int64_t a, int64_t b) {
      for (int64_t o = 0; o < along.outer; ++o)
        for (int64_t i = 0; i < along.inner; ++i) {
          const auto left = load(elements[(o * along.extent + a) * along.inner + i]);
          const auto right = load(elements[(o * along.extent + b) * along.inner + i]);
          const bool left_nan = left != left, right_nan = right != right;
          if (left_nan != right_nan) return left_nan ? 1 : -1;
          if (left < right) return -1;
          if (right < left) return 1;
        }
      return 0;
    };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || compare(order[i - 1], order[i]) != 0) {
        first.push_back(order[i]);
        counts.push_back(0);
      }
      ++counts.back();
      inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(first.size()) - 1;
    }
  });
  if (node.get_int("sorted", 1) == 0) {
    std::vector<int64_t> by_place(first.size()), rank(first.size());
    std::iota(by_place.begin(), by_place.end(), 0);
    std::sort(by_place.begin(), by_place.end(),
              [&](int64_t a, int64_t b) { return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)]; });
    std::vector<int64_t> first_by_place, counts_by_place;
    for (size_t i = 0; i < by_place.size(); ++i) {
      const auto was = static_cast<size_t>(by_place[i]);
      rank[was] = static_cast<int64_t>(i);
      first_by_place.push_back(first[was]);
      counts_by_place.push_back(counts[was]);
    }
    for (int64_t& which : inverse) which = rank[static_cast<size_t>(which)];
    first = std::move(first_by_place);
    counts = std::move(counts_by_place);
  }
  const auto distinct = static_cast<int64_t>(first.size());
  return {take(x, along, first), int64s({distinct}, first), int64s({along.extent}, inverse),
          int64s({distinct}, counts)};
}

/// The corners of a box.
struct Box {
  float top, left, bottom, right;

  Box(const float* given, bool by_center) {
    const float a = given[0], b = given[1], c = given[2], d = given[3];
    if (by_center) {  // x, y, width, height
      top = b - d / 2, bottom = b + d / 2, left = a - c / 2, right = a + c / 2;
    } else {  // two opposite corners
      top = std::min(a, c), bottom = std::max(a, c), left = std::min(b, d), right = std::max(b, d);
    }
  }
  float area() const { return (bottom - top) * (right - left); }
};

float overlap(const Box& a, const Box& b) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0) return 0;
  const float shared = height * width;
  return shared / (a.area() + b.area() - shared);
}

// Boxes of each batch and class, best scores first, that do not overlap a better one by more than a threshold.
Results non_max_suppression(const Node& node, const std::vector<Tensor>& operands) {
  const Tensor &boxes = operand(node, operands, 0), &scores = operand(node, operands, 1);
  if (boxes.dtype != DType::float32 || scores.dtype != DType::float32 || boxes.dims.size() != 3 ||
      scores.dims.size() != 3 || boxes.dims[0] != scores.dims[0] || boxes.dims[1] != scores.dims[2] ||
      boxes.dims[2] != 4)
    fail("run", "{}: its boxes must be float32 [batch, boxes, 4], and its scores float32 [batch, classes, boxes]",
         node.label());
  const auto most = scalar<int64_t>(node, operands, 2, 0);
  const auto most_overlap = scalar<float>(node, operands, 3, 0);
  const bool by_center = node.get_int("center_point_box", 0) != 0;
  const int64_t batches = scores.dims[0], classes = scores.dims[1], count = scores.dims[2];
  std::vector<int64_t> selected;
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t category = 0; category < classes; ++category) {
      const float* score = scores.as<float>().data() + (batch * classes + category) * count;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < count; ++i)
        if (!std::isnan(score[i]) && (!has(operands, 4) || score[i] > scalar<float>(node, operands, 4, 0)))
          order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score[a] > score[b]; });
      std::vector<Box> kept;
      for (int64_t candidate : order) {
        if (static_cast<int64_t>(kept.size()) >= most) break;
        const Box box(boxes.as<float>().data() + (batch * count + candidate) * 4, by_center);
        if (std::any_of(kept.begin(), kept.end(),
                        [&](const Box& better) { return overlap(box, better) > most_overlap; }))
          continue;
        kept.push_back(box);
        selected.insert(selected.end(), {batch, category, candidate});
      }
    }
  return {int64s({static_cast<int64_t>(selected.size() / 3), 3}, selected)};
}

struct Row {
  std::string_view op_type;
  Results (*run)(const Node&, const std::vector<Tensor>&);
};

constexpr std::array<Row, 4> kDataSized = {{
    {"NonZero", non_zero},
    {"Compress", compress},
    {"Unique", unique},
    {"NonMaxSuppression", non_max_suppression},
}};

const Row* row_of(const Node& node) {
  if (!node.domain.empty()) return nullptr;
  const auto row =
      std::find_if(kDataSized.begin(), kDataSized.end(), [&](const Row& r) { return r.op_type == node.op_type; });
  return row == kDataSized.end() ? nullptr : &*row;
}

// The slices of its operand along an axis.
bool takes_slices(const Node& node, size_t result) {
  return result == 0 && (node.is("Compress") || node.is("Unique")) && node.get<int64_t>("axis");
}

}  // namespace

Shape data_sized_shape(const Node& node, size_t result, const Dims& extents, const Shape& operand,
                       const Expr& counted) {
  Shape shape(extents.begin(), extents.end());
  size_t dimension = node.is("NonZero") ? 1 : 0;
  if (takes_slices(node, result) && operand.size() == extents.size()) {
    shape = operand;
    dimension = Along(node, extents, *node.get<int64_t>("axis")).dimension;
  }
  shape.at(dimension) = counted;
  return shape;
}

std::vector<Tensor> run_data_sized(const Node& node, const std::vector<Tensor>& operands) {
  const Row* row = row_of(node);
  check(row != nullptr, "the size of every other operator's results is known before it runs");
  return row->run(node, operands);
}

}  // namespace tessera::kernels
