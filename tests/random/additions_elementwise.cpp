#include "random/writer.h"

namespace tessera::random {
namespace {

using Names = std::vector<std::string_view>;

bool exact_unary(Writer& w) {
  Value* x = w.pick_number();
  return x && w.add(w.one_of<std::string_view>({"Neg", "Abs", "Relu", "Identity"}), {x}, {}, w.facts(x));
}

bool sign(Writer& w) {
  Value* x = w.pick_exact();
  return x && w.add("Sign", {x}, {}, {1, true});
}

// Bounded slopes, so that rounding errors stay rounding errors.
bool smooth_unary(Writer& w) {
  Value* x = w.pick([&](const Value* v) {
    return (v->dtype() == DType::float32 || v->dtype() == DType::float64) && w.facts(v).bound <= 0x1p16;
  });
  auto type = w.one_of<std::string_view>({"Tanh", "Sigmoid", "Erf", "Softplus", "Gelu", "LeakyRelu", "HardSigmoid",
                                          "Softsign", "Elu", "Atan", "Sin", "Swish", "Mish"});
  return x && w.add(type, {x}, {}, {std::max(w.facts(x).bound, 1.0), false});
}

bool arithmetic(Writer& w) {
  Value* a = w.pick_number();
  if (!a) return false;
  Value* b = w.companion(a);
  Facts x = w.facts(a), y = w.facts(b);
  const bool exact = x.exact && y.exact;
  if (w.one_in(2)) std::swap(a, b);
  auto type = w.one_of<std::string_view>({"Add", "Add", "Sub", "Mul", "Mul", "Max", "Min"});
  double bound = type == "Mul"                    ? x.bound * y.bound
                 : type == "Max" || type == "Min" ? std::max(x.bound, y.bound)
                                                  : x.bound + y.bound;
  if (a->dtype() == DType::uint8 && type == "Sub") return false;
  return w.add(type, {a, b}, {}, {bound, exact});
}

bool comparison(Writer& w) {
  Value* a = w.pick_exact();
  if (!a) return false;
  Value* b = w.companion(a);
  return w.facts(b).exact &&
         w.add(w.one_of<std::string_view>({"Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"}), {a, b}, {},
               {1, true});
}

bool logic(Writer& w) {
  Value* a = w.pick([](const Value* v) { return v->dtype() == DType::boolean; });
  if (!a) return false;
  if (w.one_in(4)) return w.add("Not", {a}, {}, {1, true});
  return w.add(w.one_of<std::string_view>({"And", "Or", "Xor"}), {a, w.companion(a)}, {}, {1, true});
}

bool where(Writer& w) {
  Value* a = w.pick_number();
  if (!a) return false;
  Value* b = w.companion(a);
  Value* condition = w.pick([&](const Value* v) { return v->dtype() == DType::boolean && v->shape() == a->shape(); });
  if (!condition)
    condition = w.source(w.one_in(3) && a->rank() > 0 ? Shape{a->shape().back()} : a->shape(), DType::boolean);
  Facts x = w.facts(a), y = w.facts(b);
  if (w.one_in(2)) std::swap(a, b);
  return w.add("Where", {condition, a, b}, {}, {std::max(x.bound, y.bound), x.exact && y.exact});
}

bool clip(Writer& w) {
  Value* x = w.pick([&](const Value* v) { return v->dtype() == DType::float32 || v->dtype() == DType::int64; });
  if (!x) return false;
  Value* low = w.graph().constant_scalar(x->dtype(), -3);
  Value* high = w.one_in(3) ? nullptr : w.graph().constant_scalar(x->dtype(), 5);
  return w.add("Clip", {x, low, high}, {}, {high ? 5 : std::max(3.0, w.facts(x).bound), w.facts(x).exact});
}

bool cast(Writer& w) {
  Value* x = w.pick([&](const Value* v) { return w.facts(v).exact; });
  if (!x) return false;
  DType to = w.one_of<DType>({DType::float32, DType::float32, DType::float64, DType::float16, DType::bfloat16,
                              DType::int32, DType::int64, DType::boolean});
  if (w.has_specials() && is_integer(to) && is_float(x->dtype())) to = DType::float64;  // no integer is NaN
  return w.add("Cast", {x}, {{"to", static_cast<int64_t>(to)}}, w.facts(x));
}

bool several(Writer& w) {
  Value* a = w.pick_float();
  if (!a) return false;
  Value *b = w.companion(a), *c = w.companion(a);
  Facts x = w.facts(a), y = w.facts(b), z = w.facts(c);
  return w.add("Sum", {a, b, c}, {}, {x.bound + y.bound + z.bound, x.exact && y.exact && z.exact});
}

}  // namespace

std::vector<Addition> elementwise_additions() {
  return {exact_unary, exact_unary, sign,  smooth_unary, smooth_unary, arithmetic, arithmetic, arithmetic,
          arithmetic,  comparison,  logic, where,        clip,         cast,       cast,       several};
}

}  // namespace tessera::random
