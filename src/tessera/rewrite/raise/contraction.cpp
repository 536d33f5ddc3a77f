#include "tessera/rewrite/raise/contraction.h"

#include <algorithm>

#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {

std::vector<int> Contraction::index(const Expr& extent) {
  if (extent.is(1)) return {};
  indices_.push_back({extent});
  return {static_cast<int>(indices_.size()) - 1};
}

Factor Contraction::whole(Value* value) {
  Factor factor{value, {}};
  for (const Expr& extent : value->shape()) factor.dims.push_back(index(extent));
  return factor;
}

void Contraction::append(int index, std::vector<int>& list) const {
  const Index& of = indices_[static_cast<size_t>(index)];
  if (of.outer < 0) {
    list.push_back(index);
    return;
  }
  append(of.outer, list);
  append(of.inner, list);
}

std::vector<int> Contraction::flat(const Factor& factor, size_t from, size_t to) const {
  std::vector<int> list;
  for (size_t d = from; d < std::min(to, factor.dims.size()); ++d)
    list.insert(list.end(), factor.dims[d].begin(), factor.dims[d].end());
  return parts(list);
}

std::vector<int> Contraction::parts(const std::vector<int>& indices) const {
  std::vector<int> list;
  for (const int each : indices) append(each, list);
  return list;
}

// The same elements in the same order, under another shape. An index that is longer than a dimension is split.
std::optional<std::vector<std::vector<int>>> Contraction::regrouped(const Factor& factor, const Shape& shape) {
  std::vector<int> left = flat(factor);
  std::reverse(left.begin(), left.end());  // the next one is the last
  std::vector<std::vector<int>> dims;
  for (const Expr& extent : shape) {
    std::vector<int>& dim = dims.emplace_back();
    for (Expr missing = extent; !missing.is(1);) {
      if (left.empty()) return std::nullopt;
      const int next = left.back();
      const Expr has = indices_[static_cast<size_t>(next)].extent;
      left.pop_back();
      if (has.is(0)) return std::nullopt;
      if (const auto rest = Expr::exact_divide(missing, has)) {
        dim.push_back(next);
        missing = *rest;
        continue;
      }
      const auto inner = Expr::exact_divide(has, missing);
      if (!inner) return std::nullopt;
      const auto outer_index = index(missing), inner_index = index(*inner);
      Index& split = indices_[static_cast<size_t>(next)];
      split.outer = outer_index.front();
      split.inner = inner_index.front();
      dim.push_back(split.outer);
      left.push_back(split.inner);
      break;
    }
  }
  return left.empty() ? std::optional(dims) : std::nullopt;
}

std::optional<Factor> Contraction::broadcast(const Factor& result, Value* value, size_t dims) const {
  if (!value->has_shape() || value->rank() > result.dims.size()) return std::nullopt;
  const size_t offset = result.dims.size() - value->rank();
  Factor factor{value, {}};
  for (size_t d = 0; d < dims; ++d) {
    const bool has_one = value->shape()[d].is(1);
    if (!has_one && value->shape()[d] != result.value->shape()[offset + d]) return std::nullopt;
    factor.dims.push_back(has_one ? std::vector<int>{} : result.dims[offset + d]);
  }
  return factor;
}

std::optional<Factor> Contraction::operand(const Factor& result, Value* value) const {
  return broadcast(result, value, value->rank());
}

std::optional<Factor> Contraction::moved(const Factor& result) {
  const Node* node = result.value->producer;
  if (!node || node->is("Cast") || !node->input(0) || !node->input(0)->has_shape()) return std::nullopt;
  const Shape& shape = node->inputs[0]->shape();
  Factor factor{node->inputs[0], std::vector<std::vector<int>>(shape.size())};
  if (ops::moves_of(*node) == ops::Moves::in_order) {
    auto dims = regrouped(result, shape);
    if (!dims) return std::nullopt;
    factor.dims = std::move(*dims);
    return factor;
  }
  if (node->is("Transpose")) {
    const auto permutation = permutation_of(*node);
    for (size_t d = 0; d < shape.size(); ++d) factor.dims[static_cast<size_t>(permutation[d])] = result.dims[d];
    return factor;
  }
  if (node->is("Expand")) return operand(result, node->inputs[0]);
  if (node->is("Tile")) {
    const auto times = contents(node->input(1));
    if (!times || times->size() != shape.size()) return std::nullopt;
    Shape apart;  // repetitions are slower than what is repeated
    for (size_t d = 0; d < shape.size(); ++d) apart.insert(apart.end(), {(*times)[d], shape[d]});
    const auto dims = regrouped(result, apart);
    if (!dims) return std::nullopt;
    for (size_t d = 0; d < shape.size(); ++d) factor.dims[d] = (*dims)[2 * d + 1];
    return factor;
  }
  return std::nullopt;
}

std::vector<Factor> Contraction::operands(const Factor& result, std::vector<int>& summed) {
  const Node* node = result.value->producer;
  if (!node || !node->domain.empty() || !node->input(0) || !node->input(0)->has_shape()) return {};
  Value* first = node->inputs[0];
  const Shape& shape = first->shape();
  if (node->is("ReduceSum")) {
    const auto axes = numbers(node->input(1));
    if (!axes || axes->empty()) return {};
    const bool keeps = node->get_int("keepdims", 1) != 0;
    Factor factor{first, {}};
    for (size_t d = 0, at = 0; d < shape.size(); ++d) {
      const bool is_summed = std::any_of(axes->begin(), axes->end(), [&](int64_t axis) {
        return axis == static_cast<int64_t>(d) || axis + static_cast<int64_t>(shape.size()) == static_cast<int64_t>(d);
      });
      factor.dims.push_back(is_summed ? index(shape[d]) : result.dims[at]);
      if (is_summed) summed.insert(summed.end(), factor.dims[d].begin(), factor.dims[d].end());
      if (!is_summed || keeps) ++at;
    }
    return {factor};
  }
  if (node->is("Mul")) {
    const auto left = operand(result, first), right = operand(result, node->inputs[1]);
    if (!left || !right) return {};
    return {*left, *right};
  }
  if (node->is("MatMul") && shape.size() >= 2 && node->inputs[1]->rank() >= 2) {
    const Shape& other = node->inputs[1]->shape();
    if (shape.back() != other[other.size() - 2]) return {};
    const std::vector<int> along = index(shape.back()), &row = result.dims[result.dims.size() - 2],
                           &column = result.dims.back();
    std::vector<Factor> both;
    for (const size_t i : {0, 1}) {
      auto factor = broadcast(result, node->inputs[i], node->inputs[i]->rank() - 2);
      if (!factor) return {};
      factor->dims.push_back(i == 0 ? row : along);
      factor->dims.push_back(i == 0 ? along : column);
      both.push_back(*std::move(factor));
    }
    summed.insert(summed.end(), along.begin(), along.end());
    return both;
  }
  return {};
}

void Contraction::read(const Factor& result, Reading& reading) {
  if (const auto from = moved(result)) return read(*from, reading);
  const auto parts = reading.ends(result) ? std::vector<Factor>{} : operands(result, reading.summed);
  if (parts.empty()) reading.factors.push_back(result);
  for (const Factor& part : parts) read(part, reading);
}

std::optional<std::vector<Factor>> Contraction::factors(const Factor& result, const Ends& ends) {
  Reading reading{ends, {}, {}};
  read(result, reading);
  // A sum along an index that no factor has adds equal terms.
  for (const int index : parts(reading.summed)) {
    const bool is_used = std::any_of(reading.factors.begin(), reading.factors.end(), [&](const Factor& factor) {
      const std::vector<int> has = flat(factor);
      return std::find(has.begin(), has.end(), index) != has.end();
    });
    if (!is_used) return std::nullopt;
  }
  return std::move(reading.factors);
}

}  // namespace tessera::rewrite
