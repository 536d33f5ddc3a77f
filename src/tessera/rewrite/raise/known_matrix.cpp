#include "tessera/rewrite/raise/known_matrix.h"

#include <numeric>

#include "tessera/ops/fold.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/slice.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

using Elements = std::vector<Expr>;

/// Distances in elements between neighbours along each dimension.
Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

/// The elements at offset + Σ i_d·strides[d], in row-major order of i < dims.
Elements picked(const Elements& from, const Dims& dims, const Dims& strides, int64_t offset) {
  Elements result;
  Dims at(dims.size(), 0);
  for (int64_t i = 0, count = count_of(dims); i < count; ++i) {
    int64_t place = offset;
    for (size_t d = 0; d < dims.size(); ++d) place += at[d] * strides[d];
    result.push_back(from.at(static_cast<size_t>(place)));
    for (size_t d = dims.size(); d-- > 0 && ++at[d] == dims[d];) at[d] = 0;
  }
  return result;
}

std::optional<Elements> transposed_elements(const Node& node, const Elements& from, const Dims& shape) {
  Dims permutation(shape.size());
  std::iota(permutation.rbegin(), permutation.rend(), 0);
  permutation = node.get_ints("perm", permutation);
  Dims dims, strides, all = strides_of(shape);
  for (int64_t d : permutation) {
    dims.push_back(shape.at(d));
    strides.push_back(all.at(d));
  }
  return picked(from, dims, strides, 0);
}

std::optional<Elements> sliced_elements(const Node& node, const Elements& from, const Dims& shape) {
  auto starts = numbers(node.input(1)), ends = numbers(node.input(2));
  if (!starts || !ends || ends->size() != starts->size()) return std::nullopt;
  Dims axes(starts->size()), steps(starts->size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  for (auto [index, into] : {std::pair(3, &axes), std::pair(4, &steps)}) {
    if (!node.input(index)) continue;
    auto given = numbers(node.input(index));
    if (!given || given->size() != starts->size()) return std::nullopt;
    *into = *given;
  }
  Dims dims = shape, strides = strides_of(shape);
  int64_t offset = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t d = static_cast<size_t>(axes[i] < 0 ? axes[i] + static_cast<int64_t>(shape.size()) : axes[i]);
    if (d >= shape.size() || steps[i] == 0) return std::nullopt;
    const ops::SliceRange range = ops::slice_range((*starts)[i], (*ends)[i], steps[i], shape[d]);
    offset += *range.start.constant() * strides[d];
    dims[d] = *range.count.constant();
    strides[d] *= steps[i];
  }
  return picked(from, dims, strides, offset);
}

/// OneHot of a list along a new last dimension.
std::optional<Elements> one_hot_elements(const Node& node, size_t rank) {
  auto places = numbers(node.input(0)), depth = numbers(node.input(1));
  auto choices = contents(node.input(2));  // off, on
  if (!places || !depth || depth->size() != 1 || !choices || choices->size() != 2) return std::nullopt;
  const int64_t axis = node.get_int("axis", -1);
  if ((axis != -1 && axis + 1 != static_cast<int64_t>(rank)) || (*depth)[0] < 1) return std::nullopt;
  Elements result;
  for (int64_t place : *places)
    for (int64_t i = 0; i < (*depth)[0]; ++i)
      result.push_back((*choices)[i == (place < 0 ? place + (*depth)[0] : place) ? 1 : 0]);
  return result;
}

}  // namespace

std::optional<Elements> known_elements(const Value* value) {
  if (auto list = contents(value)) return list;
  const Node* node = value ? value->producer : nullptr;
  if (!node || !node->domain.empty() || !is_integer(value->dtype())) return std::nullopt;
  if (node->is("OneHot")) return one_hot_elements(*node, value->rank());
  const bool keeps = node->is("Reshape") || (node->is("Cast") && is_integer(node->input(0)->dtype()));
  if (!keeps && !node->is("Transpose") && !node->is("Slice")) return std::nullopt;
  auto shape = node->input(0)->has_shape() ? constants_of(node->input(0)->shape()) : std::nullopt;
  if (!shape || count_of(*shape) > ops::kMaxContent) return std::nullopt;
  auto from = known_elements(node->input(0));
  if (from && !ops::all_held(*from, value->dtype())) return std::nullopt;  // a narrowing Cast changes them
  if (!from || keeps) return from;
  return node->is("Slice") ? sliced_elements(*node, *from, *shape) : transposed_elements(*node, *from, *shape);
}

}  // namespace tessera::rewrite
