#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/shared_vector.h"
#include "tessera/ir/expr.h"
#include "tessera/ir/reduction.h"
#include "tessera/mesh/mesh.h"

namespace tessera {

/// A mesh axis, or a sub-axis: if the axis has size `pre`·`size`·(rest), its index has three digits, major first, and
/// the sub-axis is the one of `size`. Prints as "tp", or "tp:(pre)size".
struct AxisRef {
  std::string axis;
  int64_t pre = 1;
  int64_t size = 1;

  static AxisRef whole(const MeshAxis& axis) { return {axis.name, 1, axis.size}; }
  bool is_whole(const Mesh& mesh) const;
  /// Whether the digits of the two depend on each other; a sharding cannot have both.
  bool overlaps(const AxisRef& other) const;
  std::string str(const Mesh& mesh) const;
  bool operator==(const AxisRef&) const = default;
  bool operator<(const AxisRef& other) const;
};

/// Whether `longer` begins with all of `shorter`.
bool is_prefix(const std::vector<AxisRef>& shorter, const std::vector<AxisRef>& longer);

/// Joins neighbouring sub-axes of one axis, major then minor: tp:(1)2, tp:(2)2 becomes tp:(1)4. The ranks and their
/// order stay the same.
std::vector<AxisRef> join_axes(const std::vector<AxisRef>& axes);

/// The number of ranks in a group over these axes.
int64_t ranks_of(const std::vector<AxisRef>& axes);
bool contains(const std::vector<AxisRef>& axes, const AxisRef& axis);
/// The digits of an axis or sub-axis before and after `gone`. Example: tp (of size 8) without tp:(2)4 is tp:(1)2; tp
/// without tp is empty. Nullopt if `gone` is not among its digits.
std::optional<std::vector<AxisRef>> without(const AxisRef& whole, const AxisRef& gone);
/// The digit of a group's member along one of the group's axes, or along digits of one. The first axis is the major one
/// in member numbers.
int64_t digit_of(int64_t member, const std::vector<AxisRef>& group, const AxisRef& axis);

/// This rank's digit along an axis or sub-axis, in 0 … size-1, as an expression over `@axis`.
Expr index_along(const AxisRef& axis, const Mesh& mesh);
/// The digit of the rank at `coordinates`.
int64_t digit_along(const AxisRef& axis, const Mesh& mesh, const std::vector<int64_t>& coordinates);

/// A factor of a dimension: `size` units, split over `axes`, the major first. Prints as "12{tp}", "192".
struct Part {
  Expr size = 1;
  std::vector<AxisRef> axes;
  bool operator==(const Part&) const = default;
};

/// The part's axes, with neighbouring digits of one mesh axis joined if they split it evenly: one split after the other
/// then equals the split by both. Uneven nested splits differ, so they stay as they are.
std::vector<AxisRef> join_even(const Part& part);

/// How one dimension is split: the product of its parts, major to minor. One part without axes: whole.
///
/// An index of the dimension is a mixed-radix number with one digit per part; each part's axes restrict its digit to
/// one interval. Intervals are balanced (sizes differ by at most one, larger ones first); several axes nest, major
/// first. Example: 3·4{tp} over tp=2 is a dimension of 12 of which rank 0 holds 0 1, 4 5, 8 9.
struct DimSharding {
  std::vector<Part> parts;
  bool open = false;  ///< propagation may add axes; in a finished sharding always false
  bool is_split() const;
  Expr size() const;
  bool operator==(const DimSharding&) const = default;
};

/// An axis over which a tensor is not yet reduced.
struct PartialAxis {
  AxisRef axis;
  Reduction reduction = Reduction::sum;
  bool operator==(const PartialAxis&) const = default;
};

/// An axis along which a tensor lives at one index; ranks of other indices have no part of it.
struct PlacedAxis {
  AxisRef axis;
  int64_t index = 0;
  bool operator==(const PlacedAxis&) const = default;
};

/// The layout of a tensor over a mesh: the split of each dimension, the axes over which it is partial, and the axes
/// along which it lives at only one index. An axis (or overlapping sub-axes) appears at most once; the tensor is
/// replicated over all other axes.
struct Sharding {
  SharedVector<DimSharding> dims;
  std::vector<PartialAxis> partial = {};
  std::vector<PlacedAxis> at = {};

  static Sharding replicated(const Shape& shape);
  /// Whether every rank has all of the tensor.
  bool is_replicated() const { return at.empty() && is_whole(); }
  /// Whether every rank on which it lives has all of it.
  bool is_whole() const;
  bool is_partial() const { return !partial.empty(); }
  /// Whether it lives on the rank at `coordinates`.
  bool lives_on(const Mesh& mesh, const std::vector<int64_t>& coordinates) const;
  /// All axes: those of dimensions, then the partial ones, then those of its place.
  std::vector<AxisRef> axes() const;
  bool uses(const AxisRef& axis) const;  ///< or one that overlaps it
  /// "[batch{dp}, -, 6{tp}·32] partial(sum:tp) at(pp=1)": `-` is a whole dimension.
  std::string str(const Mesh& mesh) const;
  bool operator==(const Sharding&) const = default;
};

/// The balanced split: extent and first element of shard `index`, of `count` shards of `size` elements in all.
Expr split_extent(const Expr& size, const Expr& index, int64_t count);
Expr split_offset(const Expr& size, const Expr& index, int64_t count);

/// Extent and first digit of this rank's interval of a part (nested over its axes).
Expr local_extent(const Part& part, const Mesh& mesh);
Expr local_offset(const Part& part, const Mesh& mesh);

/// This rank's extent of a dimension, and of all.
Expr local_extent(const DimSharding& dim, const Mesh& mesh);
Shape local_shape(const Sharding& sharding, const Mesh& mesh);
/// The first element of this rank's interval of a dimension whose only split part is the major-most one (zero if none
/// is split). Throws an internal error otherwise, since such a set is not an interval.
Expr local_offset(const DimSharding& dim, const Mesh& mesh);

/// The same index sets with the fewest parts: neighbours merge unless a split separates them. Equal canonical forms
/// mean equal index sets; the converse holds for constant sizes, up to coincidences of uneven splits.
DimSharding canonical(const DimSharding& dim);
bool same_layout(const Sharding& a, const Sharding& b);

/// Suffix products of the parts, ascending: 3·4·16 → {16, 64, 192}; the last is the dimension itself.
std::vector<Expr> boundaries(const DimSharding& dim);
/// The same index sets with parts cut at (at least) the given suffix products. Nullopt if a cut does not divide its
/// part, or falls inside a split part whose division is not free (the axis sizes do not divide the major factor).
std::optional<DimSharding> refine(const DimSharding& dim, const std::vector<Expr>& cuts);

/// The most elements that a rank can hold: the product of local extents with all axis indices zero, since rank 0 has
/// the largest shards.
Expr largest_shard(const Sharding& sharding, const Mesh& mesh);

/// The expression with a rank's coordinates in place of its axis indices.
Expr bind_rank(const Expr& expr, const Mesh& mesh, const std::vector<int64_t>& coordinates);

/// Reads a sharding for a tensor of that shape: "[d, …]" with an optional " partial(sum:tp)" and then an optional "
/// at(pp=1)"; d is "-" (whole, closed), "?" (open), "tp", "{dp,tp}", or parts "3*192{tp}" ("·" is accepted too); a
/// suffix "?" opens the dimension. One part of a product may omit its size: "{tp}*64". `what` names the tensor in
/// errors.
Sharding parse_sharding(std::string_view text, const Shape& shape, const Mesh& mesh, std::string_view what);

/// Reads places, "pp=1, dp=0", as in at(…), or with ':' for '='. Throws a user error (stage "place") that names `what`
/// if an axis is not in the mesh, or an index is out of range.
std::vector<PlacedAxis> parse_place(std::string_view text, const Mesh& mesh, std::string_view what);
/// Whether parse_place could read the text on some mesh.
bool reads_as_place(std::string_view text);
/// "pp=1, dp=0"
std::string print_place(const std::vector<PlacedAxis>& place, const Mesh& mesh);

}  // namespace tessera
