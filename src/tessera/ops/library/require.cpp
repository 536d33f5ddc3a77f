#include "tessera/ops/library/require.h"

#include "tessera/ops/library/infer.h"

namespace tessera::ops {
namespace {

thread_local EqualityNotes* notes = nullptr;

}  // namespace

EqualityNotes::EqualityNotes() : before_(notes) {
  notes = this;
}

EqualityNotes::~EqualityNotes() {
  notes = before_;
}

void EqualityNotes::note(const Expr& a, const Expr& b, bool broadcasts) {
  if (notes && !(a == b)) notes->all_.push_back({a, b, broadcasts});
}

const Shape& require_rank(const Node& node, size_t index, std::string_view what, size_t rank) {
  const Shape& shape = shape_of(node, index);
  if (shape.size() != rank)
    fail_node(node, "{} must have rank {}, but it is {}; Reshape it", what, rank, to_string(shape));
  return shape;
}

Expr require_equal(const Node& node, const Expr& a, const Expr& b, std::string_view what_a, std::string_view what_b) {
  auto extent = same_extent(a, b);
  if (!extent) fail_node(node, "{} ({}) and {} ({}) must be equal", what_a, a.str(), what_b, b.str());
  EqualityNotes::note(a, b, false);
  return *extent;
}

DType require_same_dtype(const Node& node, const std::vector<size_t>& indices) {
  DType dtype = DType::undefined;
  for (size_t index : indices) {
    if (!has_operand(node, index)) continue;
    DType given = operand(node, index).dtype();
    if (dtype == DType::undefined) dtype = given;
    if (given != dtype)
      fail_node(node, "operand {} is {}, but the one before is {}; Cast one of them", index, name_of(given),
                name_of(dtype));
  }
  return dtype;
}

void require_broadcast_to(const Node& node, size_t index, std::string_view what, const Shape& shape) {
  const Shape& given = shape_of(node, index);
  bool fits = given.size() <= shape.size();
  for (size_t d = 0; fits && d < given.size(); ++d) {
    const Expr& full = shape[shape.size() - given.size() + d];
    fits = given[d].is(1) || same_extent(given[d], full).has_value();
    if (fits && !given[d].is(1)) EqualityNotes::note(given[d], full, true);
  }
  if (!fits)
    fail_node(node, "{} {} does not broadcast to {}; its extents must be 1 or equal, aligned at the right", what,
              to_string(given), to_string(shape));
}

}  // namespace tessera::ops
