#include <cmath>
#include <numbers>

#include "tessera/ops/gradients/gradients.h"

/// Gradients of element-wise operators. A table: operator, and what it gives.
namespace tessera::ops {
namespace {

using G = GradientBuilder;

// g · f'(x).
template <typename Slope>
void times(G& b, Slope slope) {
  b.give(0, b.mul(b.g(), slope(b, b.x(), b.y())));
}

// g where a condition holds, else nothing.
void pass_where(G& b, Value* condition) {
  b.give(0, b.where(condition, b.g(), 0.0));
}

float alpha_of(const G& b, float otherwise) {
  return b.node.get_float("alpha", otherwise);
}

// The derivative of a function that is x itself (times `scale`) above 0, and of another below.
void linear_above_zero(G& b, double scale, Value* slope_below) {
  Value* above = b.greater(b.x(), 0);
  b.give(0, b.mul(b.g(), b.where(above, b.number(b.x(), scale), slope_below)));
}

void gelu(G& b) {
  Value* x = b.x();
  if (b.node.get_string("approximate", "none") == "tanh") {
    // y = x/2 · (1 + t), t = tanh(u), u = √(2/π)·(x + 0.044715·x³)
    const double k = std::sqrt(2 / std::numbers::pi), c = 0.044715;
    Value* x2 = b.mul(x, x);
    Value* t = b.unary("Tanh", b.mul(x, b.add(b.mul(x2, k * c), k)));
    Value* slope_u = b.add(b.mul(x2, 3 * k * c), k);
    Value* bell = b.mul(b.mul(b.mul(b.sub(1, b.mul(t, t)), slope_u), x), 0.5);
    b.give(0, b.mul(b.g(), b.add(b.mul(b.add(t, 1), 0.5), bell)));
    return;
  }
  // y = x·Φ(x), y' = Φ(x) + x·φ(x)
  Value* cumulative = b.mul(b.add(b.unary("Erf", b.mul(x, std::numbers::sqrt2 / 2)), 1), 0.5);
  Value* density = b.mul(b.unary("Exp", b.mul(b.mul(x, x), -0.5)), 1 / std::sqrt(2 * std::numbers::pi));
  b.give(0, b.mul(b.g(), b.add(cumulative, b.mul(x, density))));
}

void swish(G& b) {
  const double alpha = alpha_of(b, 1);
  Value* x = b.x();
  Value* s = b.unary("Sigmoid", b.mul(x, alpha));
  b.give(0, b.mul(b.g(), b.mul(s, b.add(b.mul(b.mul(x, alpha), b.sub(1, s)), 1))));
}

void mish(G& b) {
  Value* x = b.x();
  Value* t = b.unary("Tanh", b.unary("Softplus", x));
  Value* slope = b.mul(b.sub(1, b.mul(t, t)), b.unary("Sigmoid", x));
  b.give(0, b.mul(b.g(), b.add(t, b.mul(x, slope))));
}

void hard_swish(G& b) {
  Value* x = b.x();
  Value* within = b.where(b.less(x, 3), b.add(b.mul(x, 1.0 / 3), 0.5), 1);
  b.give(0, b.mul(b.g(), b.where(b.greater(x, -3), within, 0.0)));
}

void hard_sigmoid(G& b) {
  const double alpha = alpha_of(b, 0.2F), beta = b.node.get_float("beta", 0.5F);
  Value* line = b.add(b.mul(b.x(), alpha), beta);
  Value* within = b.emit("And", {b.greater(line, 0), b.less(line, 1)});
  b.give(0, b.where(within, b.mul(b.g(), alpha), 0.0));
}

void shrink(G& b) {
  const double lambda = b.node.get_float("lambd", 0.5F);
  pass_where(b, b.greater(b.unary("Abs", b.x()), lambda));
}

void selu(G& b) {
  const double alpha = alpha_of(b, 1.67326319217681884765625F),
               gamma = b.node.get_float("gamma", 1.05070102214813232421875F);
  linear_above_zero(b, gamma, b.mul(b.unary("Exp", b.x()), gamma * alpha));
}

void elu(G& b) {
  linear_above_zero(b, 1, b.mul(b.unary("Exp", b.x()), alpha_of(b, 1)));
}

void celu(G& b) {
  linear_above_zero(b, 1, b.unary("Exp", b.mul(b.x(), 1 / alpha_of(b, 1))));
}

void prelu(G& b) {
  Value* above = b.greater(b.x(0), 0);
  if (b.wants(0)) b.give(0, b.where(above, b.g(), b.mul(b.g(), b.x(1))));
  if (b.wants(1)) b.give(1, b.where(above, b.number(b.g(), 0), b.mul(b.g(), b.x(0))));
}

void clip(G& b) {
  Value *x = b.x(0), *low = b.x(1), *high = b.x(2), *g = b.g();
  Value* inside = g;
  if (low) inside = b.where(b.emit("GreaterOrEqual", {x, low}), inside, 0.0);
  if (high) inside = b.where(b.emit("LessOrEqual", {x, high}), inside, 0.0);
  b.give(0, inside);
  // ONNX clips by min first, then by max.
  if (b.wants(1)) {
    Value* at_low = b.where(b.emit("Less", {x, low}), g, 0.0);
    b.give(1, high ? b.where(b.emit("LessOrEqual", {low, high}), at_low, 0.0) : at_low);
  }
  if (b.wants(2)) b.give(2, b.where(b.emit("Greater", {low ? b.emit("Max", {x, low}) : x, high}), g, 0.0));
}

void multiply(G& b) {
  if (b.wants(0)) b.give(0, b.mul(b.g(), b.x(1)));
  if (b.wants(1)) b.give(1, b.mul(b.g(), b.x(0)));
}

void divide(G& b) {
  Value* over = b.div(b.g(), b.x(1));
  if (b.wants(0)) b.give(0, over);
  if (b.wants(1)) b.give(1, b.neg(b.mul(over, b.y())));
}

void subtract(G& b) {
  b.give(0, b.g());
  if (b.wants(1)) b.give(1, b.neg(b.g()));
}

void power(G& b) {
  Value *x = b.x(0), *e = b.x(1);
  Value* exponent = b.cast(e, x->dtype());
  if (b.wants(0)) {
    Value* slope = b.mul(exponent, b.emit("Pow", {x, b.add(exponent, -1)}));
    Value* constant = b.emit("Equal", {exponent, b.number(exponent, 0)});
    b.give(0, b.mul(b.g(), b.where(constant, b.number(x, 0), slope)));
  }
  if (b.wants(1)) {
    // 0^e is 0 for positive e, and stays so.
    Value* none = b.emit(
        "And", {b.emit("Equal", {x, b.number(x, 0)}), b.emit("GreaterOrEqual", {exponent, b.number(exponent, 0)})});
    Value* slope = b.mul(b.y(), b.unary("Log", x));
    b.give(1, b.cast(b.mul(b.g(), b.where(none, b.number(x, 0), slope)), e->dtype()));
  }
}

void modulo(G& b) {
  b.give(0, b.g());
  if (!b.wants(1)) return;
  // a mod c = a − c·round(a/c), rounded towards 0 if fmod, else down.
  Value* quotient = b.div(b.sub(b.x(0), b.y()), b.x(1));
  b.give(1, b.neg(b.mul(b.g(), b.unary("Round", quotient))));
}

// Operands that equal the result share its gradient evenly.
void extremum(G& b) {
  std::vector<Value*> at;
  for (size_t i = 0; i < b.node.inputs.size(); ++i)
    at.push_back(b.cast(b.emit("Equal", {b.x(i), b.y()}), b.y()->dtype()));
  Value* count = at.size() == 1 ? at[0] : b.emit("Sum", at);
  Value* share = b.div(b.g(), count);
  for (size_t i = 0; i < at.size(); ++i)
    if (b.wants(i)) b.give(i, b.mul(share, at[i]));
}

void to_all(G& b) {
  for (size_t i = 0; i < b.node.inputs.size(); ++i) b.give(i, b.g());
}

void mean_of_operands(G& b) {
  Value* share = b.mul(b.g(), 1.0 / static_cast<double>(b.node.inputs.size()));
  for (size_t i = 0; i < b.node.inputs.size(); ++i) b.give(i, share);
}

void select(G& b) {
  if (b.wants(1)) b.give(1, b.where(b.x(0), b.g(), 0.0));
  if (b.wants(2)) b.give(2, b.where(b.x(0), b.number(b.g(), 0), b.g()));
}

struct Entry {
  std::string_view type;
  GradientFn gradient;
};

constexpr Entry kEntries[] = {
    {"Identity", to_all},
    {"Abs", [](G& b) { times(b, [](G& c, Value* x, Value*) { return c.unary("Sign", x); }); }},
    {"Neg", [](G& b) { b.give(0, b.neg(b.g())); }},
    {"Sign", no_gradient},
    {"Relu", [](G& b) { pass_where(b, b.greater(b.x(), 0)); }},
    {"Shrink", shrink},
    {"Exp", [](G& b) { times(b, [](G&, Value*, Value* y) { return y; }); }},
    {"Log", [](G& b) { b.give(0, b.div(b.g(), b.x())); }},
    {"Sqrt", [](G& b) { b.give(0, b.div(b.mul(b.g(), 0.5), b.y())); }},
    {"Reciprocal", [](G& b) { times(b, [](G& c, Value*, Value* y) { return c.neg(c.mul(y, y)); }); }},
    {"Sin", [](G& b) { times(b, [](G& c, Value* x, Value*) { return c.unary("Cos", x); }); }},
    {"Cos", [](G& b) { times(b, [](G& c, Value* x, Value*) { return c.neg(c.unary("Sin", x)); }); }},
    {"Tan", [](G& b) { times(b, [](G& c, Value*, Value* y) { return c.add(c.mul(y, y), 1); }); }},
    {"Sinh", [](G& b) { times(b, [](G& c, Value* x, Value*) { return c.unary("Cosh", x); }); }},
    {"Cosh", [](G& b) { times(b, [](G& c, Value* x, Value*) { return c.unary("Sinh", x); }); }},
    {"Tanh", [](G& b) { times(b, [](G& c, Value*, Value* y) { return c.sub(1, c.mul(y, y)); }); }},
    {"Asin", [](G& b) { b.give(0, b.div(b.g(), b.unary("Sqrt", b.sub(1, b.mul(b.x(), b.x()))))); }},
    {"Acos", [](G& b) { b.give(0, b.neg(b.div(b.g(), b.unary("Sqrt", b.sub(1, b.mul(b.x(), b.x())))))); }},
    {"Atan", [](G& b) { b.give(0, b.div(b.g(), b.add(b.mul(b.x(), b.x()), 1))); }},
    {"Asinh", [](G& b) { b.give(0, b.div(b.g(), b.unary("Sqrt", b.add(b.mul(b.x(), b.x()), 1)))); }},
    {"Acosh", [](G& b) { b.give(0, b.div(b.g(), b.unary("Sqrt", b.add(b.mul(b.x(), b.x()), -1)))); }},
    {"Atanh", [](G& b) { b.give(0, b.div(b.g(), b.sub(1, b.mul(b.x(), b.x())))); }},
    {"Sigmoid", [](G& b) { times(b, [](G& c, Value*, Value* y) { return c.mul(y, c.sub(1, y)); }); }},
    {"Erf",
     [](G& b) {
       times(b, [](G& c, Value* x, Value*) {
         return c.mul(c.unary("Exp", c.neg(c.mul(x, x))), 2 / std::sqrt(std::numbers::pi));
       });
     }},
    {"LeakyRelu", [](G& b) { linear_above_zero(b, 1, b.number(b.x(), alpha_of(b, 0.01F))); }},
    {"ThresholdedRelu", [](G& b) { pass_where(b, b.greater(b.x(), alpha_of(b, 1))); }},
    {"Elu", elu},
    {"Selu", selu},
    {"Celu", celu},
    {"HardSigmoid", hard_sigmoid},
    {"HardSwish", hard_swish},
    {"Mish", mish},
    {"Softplus", [](G& b) { times(b, [](G& c, Value* x, Value*) { return c.unary("Sigmoid", x); }); }},
    {"Softsign",
     [](G& b) {
       Value* scale = b.add(b.unary("Abs", b.x()), 1);
       b.give(0, b.div(b.g(), b.mul(scale, scale)));
     }},
    {"Gelu", gelu},
    {"Swish", swish},
    {"Floor", no_gradient},
    {"Ceil", no_gradient},
    {"Round", no_gradient},
    {"Add", to_all},
    {"Sub", subtract},
    {"Mul", multiply},
    {"Div", divide},
    {"Mod", modulo},
    {"Pow", power},
    {"PRelu", prelu},
    {"Max", extremum},
    {"Min", extremum},
    {"Sum", to_all},
    {"Mean", mean_of_operands},
    {"Clip", clip},
    {"Where", select},
};

}  // namespace

void no_gradient(GradientBuilder&) {}

void cast_gradient(GradientBuilder& b) {
  b.give(0, b.cast(b.g(), b.x()->dtype()));
}

void dropout_gradient(GradientBuilder& b) {
  b.give(0, b.g());
}

// Linear in its data: the same node drops the same elements of the gradient, so that nothing has to be stored.
void keyed_dropout_gradient(GradientBuilder& b) {
  std::vector<Value*> operands = b.node.inputs;
  operands[0] = b.g();
  Node* again = b.graph.add_node("Dropout", std::move(operands), {b.g()->name + ".Dropout"}, b.node.domain);
  again->attributes = b.node.attributes;
  infer_results(op_of(*again), *again);
  b.give(0, again->outputs[0]);
}

GradientFn elementwise_gradient(std::string_view type) {
  for (const Entry& entry : kEntries)
    if (entry.type == type) return entry.gradient;
  return nullptr;
}

}  // namespace tessera::ops
