#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"

/// Gradients of softmaxes and normalizations.
namespace tessera::ops {
namespace {

std::vector<int64_t> softmax_axis(const GradientBuilder& b, int64_t otherwise) {
  return {static_cast<int64_t>(normalize_axis(b.node, b.node.get_int("axis", otherwise), b.x()->rank()))};
}

// The gradient of the operand of x̂ = (x − mean)·inverse over `axes`, from x̂'s own; of x̂ = x·inverse if not `centred`.
Value* normalized_gradient(GradientBuilder& b, Value* g, Value* normal, Value* inverse,
                           const std::vector<int64_t>& axes, bool centred = true) {
  Value* along = b.mul(normal, b.mean(b.mul(g, normal), axes));
  Value* rest = centred ? b.sub(b.sub(g, b.mean(g, axes)), along) : b.sub(g, along);
  return b.mul(rest, inverse);
}

// 1/√(mean of squares + epsilon).
Value* inverse_root(GradientBuilder& b, Value* x, const std::vector<int64_t>& axes, double epsilon) {
  return b.unary("Reciprocal", b.unary("Sqrt", b.add(b.mean(b.mul(x, x), axes), epsilon)));
}

std::vector<int64_t> trailing(const GradientBuilder& b) {
  std::vector<int64_t> axes;
  for (int64_t d = softmax_axis(b, -1)[0]; d < static_cast<int64_t>(b.x()->rank()); ++d) axes.push_back(d);
  return axes;
}

// Computes in float32 at least, as the operators do by their stash_type.
DType stash(const GradientBuilder& b) {
  return bits_of(b.x()->dtype()) == 16 ? DType::float32 : b.x()->dtype();
}

// [c] as it broadcasts to [n, c, …].
Value* per_channel(GradientBuilder& b, Value* value) {
  Shape shape(b.x()->rank(), 1);
  shape[1] = b.x()->shape()[1];
  return b.reshape(value, shape);
}

}  // namespace

void softmax_gradient(GradientBuilder& b) {
  Value* product = b.mul(b.g(), b.y());
  b.give(0, b.sub(product, b.mul(b.y(), b.sum(product, softmax_axis(b, -1)))));
}

void log_softmax_gradient(GradientBuilder& b) {
  // As a sum, since labels' gradients are scattered (bind/groups.h).
  Value* total = b.neg(b.sum(b.g(), softmax_axis(b, -1)));
  b.give(0, b.add(b.g(), b.mul(b.unary("Exp", b.y()), total)));
}

void lp_normalization_gradient(GradientBuilder& b) {
  const std::vector<int64_t> axes = softmax_axis(b, -1);
  Value *x = b.x(), *along = b.sum(b.mul(b.g(), b.y()), axes);
  const bool first = b.node.get_int("p", 2) == 1;
  Value* norm = first ? b.sum(b.unary("Abs", x), axes) : b.unary("Sqrt", b.sum(b.mul(x, x), axes));
  Value* rest = b.sub(b.g(), b.mul(first ? b.unary("Sign", x) : b.y(), along));
  Value* none = b.emit("Equal", {norm, b.number(norm, 0)});
  b.give(0, b.where(none, b.number(rest, 0), b.div(rest, norm)));
}

void layer_normalization_gradient(GradientBuilder& b) {
  const DType type = stash(b);
  const std::vector<int64_t> axes = trailing(b);
  Value* x = b.cast(b.x(), type);
  Value *mean = b.cast(b.made(1), type), *inverse = b.cast(b.made(2), type);
  Value* normal = b.mul(b.sub(x, mean), inverse);
  Value* gradient = nullptr;
  const auto add = [&](Value* term) { gradient = gradient ? b.add(gradient, term) : term; };
  if (b.g()) {
    Value* g = b.cast(b.g(), type);
    if (b.wants(1)) b.give(1, b.cast(b.sum_to(b.mul(g, normal), b.x(1)->shape()), b.x(1)->dtype()));
    if (b.wants(2)) b.give(2, b.cast(b.sum_to(g, b.x(2)->shape()), b.x(2)->dtype()));
    if (b.wants(0)) add(normalized_gradient(b, b.mul(g, b.cast(b.x(1), type)), normal, inverse, axes));
  }
  if (!b.wants(0)) return;
  // Each element has its share in the mean; the inverse deviation r has the slope -r²·normal/count.
  Expr extent = 1;
  for (int64_t axis : axes) extent = extent * b.x()->shape()[static_cast<size_t>(axis)];
  Value* count = b.scalar(type, extent);
  if (b.g(1)) add(b.div(b.cast(b.g(1), type), count));
  if (b.g(2)) add(b.neg(b.mul(normal, b.div(b.mul(b.cast(b.g(2), type), b.mul(inverse, inverse)), count))));
  b.give(0, b.cast(gradient, b.x()->dtype()));
}

void rms_normalization_gradient(GradientBuilder& b) {
  const DType type = stash(b);
  const std::vector<int64_t> axes = trailing(b);
  Value *x = b.cast(b.x(), type), *g = b.cast(b.g(), type);
  Value* inverse = inverse_root(b, x, axes, b.node.get_float("epsilon", 1e-5F));
  Value* normal = b.mul(x, inverse);
  if (b.wants(1)) b.give(1, b.cast(b.sum_to(b.mul(g, normal), b.x(1)->shape()), b.x(1)->dtype()));
  if (!b.wants(0)) return;
  Value* scaled = b.mul(g, b.cast(b.x(1), type));
  b.give(0, b.cast(normalized_gradient(b, scaled, normal, inverse, axes, false), b.x()->dtype()));
}

void batch_normalization_gradient(GradientBuilder& b) {
  // y = (x − mean)·inverse·scale + bias, with stored statistics.
  Value *x = b.x(0), *g = b.g();
  const std::vector<int64_t> axes = all_but_channels(b.x()->rank());
  Value* root = b.unary("Sqrt", b.add(b.x(4), b.node.get_float("epsilon", 1e-5F)));
  Value* inverse = b.unary("Reciprocal", root);
  Value* centred = b.sub(x, per_channel(b, b.x(3)));
  Value* slope = b.mul(b.x(1), inverse);
  if (b.wants(0)) b.give(0, b.mul(g, per_channel(b, slope)));
  if (b.wants(1)) b.give(1, b.mul(b.sum(b.mul(g, centred), axes, false), inverse));
  if (b.wants(2)) b.give(2, b.sum(g, axes, false));
}

void group_normalization_gradient(GradientBuilder& b) {
  const Shape& shape = b.x()->shape();
  const bool instance = b.node.is("InstanceNormalization");
  Expr rest = 1;
  for (size_t d = 1; d < shape.size(); ++d) rest = rest * shape[d];
  const Expr groups = instance ? shape[1] : Expr(b.node.get_int("num_groups", 1));
  const auto each = Expr::exact_divide(rest, groups);
  if (!each) b.refuse("its channels do not divide into groups of a known size; fix the sizes with `shapes`");
  const Shape grouped = {shape[0], groups, *each};
  const std::vector<int64_t> within = {2};
  const DType type = stash(b);
  Value *x = b.reshape(b.cast(b.x(), type), grouped), *g = b.cast(b.g(), type);
  Value* centred = b.sub(x, b.mean(x, within));
  Value* inverse = inverse_root(b, centred, within, b.node.get_float("epsilon", 1e-5F));
  Value* normal = b.mul(centred, inverse);
  const std::vector<int64_t> axes = all_but_channels(b.x()->rank());
  if (b.wants(1)) b.give(1, b.cast(b.sum(b.mul(g, b.reshape(normal, shape)), axes, false), b.x(1)->dtype()));
  if (b.wants(2)) b.give(2, b.cast(b.sum(g, axes, false), b.x(2)->dtype()));
  if (!b.wants(0)) return;
  Value* scaled = b.reshape(b.mul(g, per_channel(b, b.cast(b.x(1), type))), grouped);
  Value* gradient = b.reshape(normalized_gradient(b, scaled, normal, inverse, within), shape);
  b.give(0, b.cast(gradient, b.x()->dtype()));
}

void mean_variance_gradient(GradientBuilder& b) {
  std::vector<int64_t> axes;
  for (int64_t axis : b.node.get_ints("axes", {0, 2, 3}))
    axes.push_back(static_cast<int64_t>(normalize_axis(b.node, axis, b.x()->rank())));
  const DType type = stash(b);
  Value *x = b.cast(b.x(), type), *g = b.cast(b.g(), type);
  // y = c/(σ + ε), with c = x − mean: (g − mean(g) − c/σ·mean(g·y))/(σ + ε), as σ' is c/σ divided by the count.
  Value* centred = b.sub(x, b.mean(x, axes));
  Value* deviation = b.unary("Sqrt", b.mean(b.mul(centred, centred), axes));
  Value* scale = b.add(deviation, 1e-9);
  Value* constant = b.emit("Equal", {deviation, b.number(deviation, 0)});
  Value* slope = b.div(centred, b.where(constant, b.number(deviation, 1), deviation));
  Value* along = b.mul(slope, b.mean(b.mul(g, b.div(centred, scale)), axes));
  b.give(0, b.cast(b.div(b.sub(b.sub(g, b.mean(g, axes)), along), scale), b.x()->dtype()));
}

}  // namespace tessera::ops
