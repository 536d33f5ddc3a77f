#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// An integer or bool (0, 1) tensor whose elements are affine in their own coordinates:
/// element[i0, i1, …] = offset + Σ strides[d]·i_d. The stride along an extent of 1 is 0.
struct Affine {
  Expr offset;
  std::vector<Expr> strides;  ///< one per dimension

  bool is_uniform() const;                   ///< all elements are equal
  std::optional<int64_t> uniform() const;    ///< the element, if all elements are the same number
  std::optional<size_t> coordinate() const;  ///< d if the element is just i_d
};

/// Recognises affine values. An arange is [0 | 1]; unsqueezing, slicing, shifting or comparing keeps it affine, and a
/// comparison that is always true is uniform. Types and shapes of all values must be known.
class AffineAnalysis {
 public:
  explicit AffineAnalysis(const Graph& graph);

  /// Null if it is not known to be affine.
  const Affine* of(const Value* value) const;
  /// The components of a GatherND's indices [..., n]: n tensors over the leading dimensions; nullopt if one is not
  /// affine.
  std::optional<std::vector<Affine>> components(const Value* indices) const;

 private:
  std::optional<Affine> leaf(const Value& value) const;
  std::optional<Affine> result(const Node& node) const;
  std::optional<Affine> slice(const Node& node) const;
  std::optional<Affine> concat(const Node& node) const;
  std::optional<Affine> gather(const Node& node) const;
  std::optional<Affine> gather_nd(const Node& node) const;
  std::optional<Affine> elementwise(const Node& node) const;

  std::unordered_map<const Value*, Affine> known_;
};

/// Bounds of an affine value over a tensor of that shape, if known.
std::optional<int64_t> lower_bound(const Affine& affine, const Shape& shape);
std::optional<int64_t> upper_bound(const Affine& affine, const Shape& shape);

}  // namespace tessera::rewrite
