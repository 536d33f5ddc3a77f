#include <numeric>

#include "random/writer.h"

namespace tessera::random {
namespace {

using Ints = std::vector<int64_t>;

size_t dim_of(const Value* x, int64_t axis) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x->rank()) : axis);
}

Value* any_of_rank(Writer& w, size_t least, size_t most = 6) {
  return w.pick([&](const Value* v) { return v->rank() >= least && v->rank() <= most; });
}

bool transpose(Writer& w) {
  Value* x = any_of_rank(w, 2);
  if (!x) return false;
  Ints order(x->rank());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), w.engine());
  return w.add("Transpose", {x}, {{"perm", order}}, w.facts(x));
}

/// Extents as a Reshape names them: 0 where a symbolic one keeps its place, -1 for one more.
std::optional<Ints> spelt(const Shape& from, const Shape& to) {
  Ints target;
  bool open = false;
  for (size_t d = 0; d < to.size(); ++d) {
    if (auto number = to[d].constant(); number && *number > 0) {
      target.push_back(*number);
    } else if (d < from.size() && from[d] == to[d]) {
      target.push_back(0);
    } else {
      if (open) return std::nullopt;
      open = true;
      target.push_back(-1);
    }
  }
  return target;
}

bool join_dims(Writer& w) {
  Value* x = any_of_rank(w, 2);
  if (!x) return false;
  Shape to = x->shape();
  auto at = w.between(0, static_cast<int64_t>(to.size()) - 2);
  to[at] = to[at] * to[at + 1];
  to.erase(to.begin() + at + 1);
  auto target = spelt(x->shape(), to);
  return target && w.add("Reshape", {x, w.ints(*target)}, {}, w.facts(x));
}

bool part_dim(Writer& w) {
  Value* x = any_of_rank(w, 1, 4);
  if (!x) return false;
  Shape to = x->shape();
  auto at = w.between(0, static_cast<int64_t>(to.size()) - 1);
  Ints factors;
  for (int64_t f = 2; f <= 6; ++f)
    if (to[at].constant().value_or(1) % f == 0 && to[at].constant().value_or(0) > 0) factors.push_back(f);
  if (factors.empty()) return false;
  const int64_t factor = w.one_of(factors);
  Expr other = *Expr::exact_divide(to[at], factor);
  const bool is_major = w.one_in(2);
  to[at] = is_major ? Expr(factor) : other;
  to.insert(to.begin() + at + 1, is_major ? other : Expr(factor));
  auto target = spelt(x->shape(), to);
  return target && w.add("Reshape", {x, w.ints(*target)}, {}, w.facts(x));
}

bool regroup(Writer& w) {
  Value* x = w.pick([](const Value* v) { return v->rank() >= 1 && constants_of(v->shape()); });
  if (!x) return false;
  int64_t left = count_of(w.dims(x));
  if (left == 0) return false;
  Ints target;
  while (target.size() < 3) {
    Ints factors;
    for (int64_t f = 1; f <= left; ++f)
      if (left % f == 0) factors.push_back(f);
    target.push_back(w.one_of(factors));
    left /= target.back();
  }
  target.push_back(w.one_in(2) ? -1 : left);
  return w.add("Reshape", {x, w.ints(target)}, {}, w.facts(x));
}

// Exporters write x.view(x.shape[0], -1) like this.
bool view_by_shape(Writer& w) {
  Value* x = any_of_rank(w, 2);
  if (!x || w.dims(x)[0] == 0) return false;
  Node* shape = w.node("Shape", {x}, {{"end", int64_t{1}}}, {1e6, true});
  Node* list =
      shape ? w.node("Concat", {shape->outputs[0], w.ints({-1})}, {{"axis", int64_t{0}}}, {1e6, true}) : nullptr;
  return list && w.add("Reshape", {x, list->outputs[0]}, {}, w.facts(x));
}

bool squeeze_and_back(Writer& w) {
  Value* x = any_of_rank(w, 1, 4);
  if (!x) return false;
  const int64_t axis = w.between(0, static_cast<int64_t>(x->rank()));
  for (size_t d = 0; d < x->rank(); ++d)
    if (x->shape()[d].is(1)) return w.add("Squeeze", {x, w.ints({static_cast<int64_t>(d)})}, {}, w.facts(x));
  return w.add("Unsqueeze", {x, w.ints({axis})}, {}, w.facts(x));
}

bool flatten(Writer& w) {
  Value* x = any_of_rank(w, 2);
  return x && w.add("Flatten", {x}, {{"axis", w.between(0, static_cast<int64_t>(x->rank()))}}, w.facts(x));
}

bool expand(Writer& w) {
  Value* x = any_of_rank(w, 0, 3);
  if (!x) return false;
  Shape to = x->shape();
  for (Expr& e : to)
    if (e.is(1)) e = w.between(1, 5);
  if (w.one_in(2)) to.insert(to.begin(), w.between(1, 4));
  if (auto extents = constants_of(to)) return w.add("Expand", {x, w.ints(*extents)}, {}, w.facts(x));
  Value* like = w.source(to, DType::float32, 1);
  Node* shape = w.node("Shape", {like}, {}, {1e6, true});
  return shape && w.add("Expand", {x, shape->outputs[0]}, {}, w.facts(x));
}

bool concat(Writer& w) {
  Value* x = any_of_rank(w, 1);
  if (!x) return false;
  const int64_t axis = any_axis(w, x);
  std::vector<Value*> pieces = {x};
  double bound = w.facts(x).bound;
  bool exact = w.facts(x).exact;
  for (int64_t more = w.between(1, 2); more > 0; --more) {
    Value* same =
        w.pick([&](const Value* v) { return v->dtype() == x->dtype() && v->has_shape() && v->shape() == x->shape(); });
    Shape shape = x->shape();
    shape[dim_of(x, axis)] = w.between(w.one_in(10) ? 0 : 1, 5);
    Value* piece = w.one_in(2) ? same : w.source(shape, x->dtype());
    pieces.insert(w.one_in(2) ? pieces.begin() : pieces.end(), piece);
    bound = std::max(bound, w.facts(piece).bound);
    exact &= w.facts(piece).exact;
  }
  return w.add("Concat", pieces, {{"axis", axis}}, {bound, exact});
}

bool split(Writer& w) {
  Value* x = any_of_rank(w, 1);
  if (!x) return false;
  const int64_t axis = any_axis(w, x);
  auto extent = x->shape()[dim_of(x, axis)].constant();
  if (!extent || *extent < 2) return false;
  const int64_t first = w.between(w.one_in(10) ? 0 : 1, *extent - 1);
  if (w.one_in(2) && *extent % 2 == 0)
    return w.node("Split", {x}, {{"axis", axis}, {"num_outputs", int64_t{2}}}, w.facts(x), 2) != nullptr;
  if (w.one_in(2) && *extent - first >= 2)
    return w.node("Split", {x, w.ints({first, 1, *extent - first - 1})}, {{"axis", axis}}, w.facts(x), 3) != nullptr;
  return w.node("Split", {x, w.ints({first, *extent - first})}, {{"axis", axis}}, w.facts(x), 2) != nullptr;
}

bool slice(Writer& w) {
  Value* x = any_of_rank(w, 1);
  if (!x) return false;
  const int64_t axis = any_axis(w, x), extent = w.dims(x)[dim_of(x, axis)];
  const int64_t step = w.one_of<int64_t>({1, 1, 1, 2, -1});
  int64_t start = w.between(0, std::max<int64_t>(0, extent - 1)), end = w.between(start, extent + 1);
  if (step < 0) {
    start = w.one_in(2) ? -1 : extent;
    end = w.one_in(2) ? INT64_MIN : 0;
  } else if (w.one_in(3)) {
    end = w.one_in(2) ? INT64_MAX : -1;
  }
  return w.add("Slice", {x, w.ints({start}), w.ints({end}), w.ints({axis}), w.ints({step})}, {}, w.facts(x));
}

bool pad(Writer& w) {
  Value* x = w.pick([&](const Value* v) { return v->dtype() == DType::float32 && v->rank() >= 1; });
  if (!x || count_of(w.dims(x)) == 0) return false;
  const std::string mode = w.one_of<std::string>({"constant", "constant", "edge", "reflect", "wrap"});
  Ints pads(2 * x->rank(), 0);
  const Dims dims = w.dims(x);
  for (size_t d = 0; d < pads.size(); ++d)
    if (w.one_in(2))
      pads[d] = w.between(mode == "constant" && w.one_in(3) ? -1 : 0, std::min<int64_t>(2, dims[d % x->rank()] - 1));
  Value* value = w.one_in(2) ? w.graph().constant_scalar(x->dtype(), 2) : nullptr;
  return w.add("Pad", {x, w.ints(pads), value}, {{"mode", mode}}, {std::max(2.0, w.facts(x).bound), w.facts(x).exact});
}

bool tile(Writer& w) {
  Value* x = any_of_rank(w, 1, 3);
  if (!x) return false;
  Ints repeats(x->rank(), 1);
  repeats[static_cast<size_t>(w.between(0, static_cast<int64_t>(x->rank()) - 1))] = w.between(1, 3);
  return w.add("Tile", {x, w.ints(repeats)}, {}, w.facts(x));
}

bool triangle(Writer& w) {
  Value* x = w.pick([](const Value* v) { return v->rank() >= 2 && v->dtype() != DType::boolean; });
  return x && w.add("Trilu", {x, w.graph().constant_int64({w.between(-2, 2)}, true)}, {{"upper", w.between(0, 1)}},
                    w.facts(x));
}

bool depth_and_space(Writer& w) {
  Value* x = w.source({w.between(1, 3), 4 * w.between(1, 2), 2 * w.between(1, 2), 2 * w.between(1, 2)}, DType::float32);
  if (w.one_in(2)) return w.add("SpaceToDepth", {x}, {{"blocksize", int64_t{2}}}, w.facts(x));
  return w.add("DepthToSpace", {x}, {{"blocksize", int64_t{2}}, {"mode", w.one_of<std::string>({"DCR", "CRD"})}},
               w.facts(x));
}

// [b, s, heads·width] → [b, heads, s, width], and back.
bool heads(Writer& w) {
  Value* x = w.pick([](const Value* v) {
    return v->rank() == 3 && v->shape()[2].constant().value_or(1) % 2 == 0 && v->shape()[2].constant().value_or(0) > 0;
  });
  if (!x) return false;
  const int64_t width = *x->shape()[2].constant();
  const int64_t count = width % 3 == 0 && w.one_in(2) ? 3 : 2;
  Node* apart = w.node("Reshape", {x, w.ints({0, 0, count, width / count})}, {}, w.facts(x));
  Node* turned = apart ? w.node("Transpose", {apart->outputs[0]}, {{"perm", Ints{0, 2, 1, 3}}}, w.facts(x)) : nullptr;
  if (!turned) return false;
  if (w.one_in(2)) return true;
  Node* back = w.node("Transpose", {turned->outputs[0]}, {{"perm", Ints{0, 2, 1, 3}}}, w.facts(x));
  return back && w.add("Reshape", {back->outputs[0], w.ints({0, 0, -1})}, {}, w.facts(x));
}

}  // namespace

std::vector<Addition> movement_additions() {
  return {transpose, transpose, join_dims, part_dim,        part_dim, regroup, view_by_shape, squeeze_and_back,
          flatten,   expand,    concat,    concat,          split,    split,   slice,         slice,
          pad,       tile,      triangle,  depth_and_space, heads};
}

}  // namespace tessera::random
