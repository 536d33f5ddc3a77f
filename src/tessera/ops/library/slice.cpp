#include "tessera/ops/library/slice.h"

#include <limits>

#include "tessera/ops/library/infer.h"

namespace tessera::ops {
namespace {

// Exporters write "to the end" as the largest number of some type.
bool is_far(const Expr& at) {
  return at.is_constant() && *at.constant() >= std::numeric_limits<int32_t>::max();
}
bool is_far_below(const Expr& at) {
  return at.is_constant() && *at.constant() <= -std::numeric_limits<int32_t>::max();
}

bool not_negative(const Expr& e) {
  auto bound = e.lower_bound();  // known already, and for sizes of 0, too
  if (!bound || *bound < 0) bound = least(e);
  return bound && *bound >= 0;
}

Expr from_front(const Expr& at, const Expr& extent) {
  return not_negative(Expr(-1) - at) ? at + extent : at;
}

Expr smaller(const Expr& a, const Expr& b) {
  if (not_negative(b - a)) return a;
  if (not_negative(a - b)) return b;
  return min(a, b);
}

Expr larger(const Expr& a, const Expr& b) {
  if (not_negative(b - a)) return b;
  if (not_negative(a - b)) return a;
  return max(a, b);
}

SliceRange backwards(const Expr& start, const Expr& end, int64_t step, const Expr& extent) {
  Expr last = extent - 1;
  // ONNX clamps a start to the dimension, where Python lets it be before the first element.
  auto placed = [&](const Expr& at, const Expr& least) {
    return is_far(at) ? last : is_far_below(at) ? least : larger(from_front(at, extent), least);
  };
  Expr from = smaller(placed(start, 0), last);
  Expr to = placed(end, -1);
  return {from, larger(ceildiv(from - to, -step), 0), step};
}

}  // namespace

SliceRange slice_range(const Expr& start, const Expr& end, int64_t step, const Expr& extent) {
  if (step < 0) return backwards(start, end, step, extent);
  Expr from = is_far(start) ? extent : is_far_below(start) ? Expr(0) : larger(from_front(start, extent), 0);
  Expr room = extent - from;
  Expr span = is_far(end) ? room : is_far_below(end) ? Expr(0) : smaller(from_front(end, extent) - from, room);
  return {from, larger(ceildiv(span, step), 0), step};
}

}  // namespace tessera::ops
