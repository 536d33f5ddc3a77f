#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"

/// Gradients of reductions along dimensions.
namespace tessera::ops {
namespace {

// A reduction's axes, and its result and the result's gradient as they broadcast to the operand.
struct Reduced {
  std::vector<int64_t> axes;
  Value *y, *g;

  explicit Reduced(GradientBuilder& b) {
    const Shape& from = b.x()->shape();
    auto given = axes_operand(b.node, 1, from.size());
    if (given && !given->empty())
      axes.assign(given->begin(), given->end());
    else if (b.node.get_int("noop_with_empty_axes", 0) == 0)
      axes = all_axes(from.size());
    Shape kept = from;
    for (int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
    y = b.reshape(b.y(), kept);
    g = b.reshape(b.g(), kept);
  }

  // How many elements one result is made of.
  Expr count(const GradientBuilder& b) const {
    Expr all = 1;
    for (int64_t axis : axes) all = all * b.x()->shape()[static_cast<size_t>(axis)];
    return all;
  }
};

using G = GradientBuilder;

void reduce_sum(G& b) {
  b.give(0, Reduced(b).g);
}

void reduce_mean(G& b) {
  Reduced r(b);
  b.give(0, b.div(r.g, b.scalar(r.g->dtype(), r.count(b))));
}

// Elements that equal the result share its gradient evenly.
void reduce_extremum(G& b) {
  Reduced r(b);
  Value* at = b.cast(b.emit("Equal", {b.x(), r.y}), b.x()->dtype());
  b.give(0, b.mul(b.div(r.g, b.sum(at, r.axes)), at));
}

// The product of all others, also where one of them is 0.
void reduce_product(G& b) {
  Reduced r(b);
  Value *x = b.x(), *zero = b.number(x, 0);
  Value* is_zero = b.emit("Equal", {x, zero});
  Value* filled = b.where(is_zero, b.number(x, 1), x);
  Value* others = filled;
  if (!r.axes.empty())
    others = b.emit("ReduceProd", {filled, b.graph.constant_int64(r.axes)}, {{"keepdims", int64_t{1}, ""}});
  Value* zeros = b.sum(b.cast(is_zero, x->dtype()), r.axes);
  Value* none = b.emit("Equal", {zeros, zero});
  Value* only = b.emit("And", {is_zero, b.emit("Equal", {zeros, b.number(x, 1)})});
  Value* factor = b.where(none, b.div(others, filled), b.where(only, others, 0.0));
  b.give(0, b.mul(r.g, factor));
}

void reduce_sum_square(G& b) {
  Reduced r(b);
  b.give(0, b.mul(b.mul(r.g, 2), b.x()));
}

void reduce_l1(G& b) {
  Reduced r(b);
  b.give(0, b.mul(r.g, b.unary("Sign", b.x())));
}

void reduce_l2(G& b) {
  Reduced r(b);
  Value* none = b.emit("Equal", {r.y, b.number(r.y, 0)});
  Value* scale = b.where(none, b.number(r.g, 0), b.div(r.g, b.where(none, b.number(r.y, 1), r.y)));
  b.give(0, b.mul(scale, b.x()));
}

void reduce_log_sum(G& b) {
  Reduced r(b);
  b.give(0, b.div(r.g, b.unary("Exp", r.y)));
}

void reduce_log_sum_exp(G& b) {
  Reduced r(b);
  b.give(0, b.mul(r.g, b.unary("Exp", b.sub(b.x(), r.y))));
}

}  // namespace

GradientFn reduction_gradient(std::string_view type) {
  constexpr std::pair<std::string_view, GradientFn> kEntries[] = {{"ReduceSum", reduce_sum},
                                                                  {"ReduceMean", reduce_mean},
                                                                  {"ReduceMax", reduce_extremum},
                                                                  {"ReduceMin", reduce_extremum},
                                                                  {"ReduceSumSquare", reduce_sum_square},
                                                                  {"ReduceL1", reduce_l1},
                                                                  {"ReduceProd", reduce_product},
                                                                  {"ReduceL2", reduce_l2},
                                                                  {"ReduceLogSum", reduce_log_sum},
                                                                  {"ReduceLogSumExp", reduce_log_sum_exp}};
  for (const auto& [name, gradient] : kEntries)
    if (name == type) return gradient;
  return nullptr;
}

void cumulative_sum_gradient(GradientBuilder& b) {
  std::vector<Attribute> turned = {{"exclusive", b.node.get_int("exclusive", 0), ""},
                                   {"reverse", int64_t{b.node.get_int("reverse", 0) == 0}, ""}};
  b.give(0, b.emit("CumSum", {b.g(), b.x(1)}, std::move(turned)));
}

}  // namespace tessera::ops
