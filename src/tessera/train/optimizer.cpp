#include "tessera/train/optimizer.h"

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/train/names.h"
#include "tessera/train/optimizer_rules.h"

namespace tessera::train {
namespace {

using ops::NodeBuilder;

using Kept = std::vector<std::pair<Value*, Value*>>;

Value* zero_state(NodeBuilder& build, const Value* parameter, std::string_view what, const Shape& shape) {
  const std::optional<Dims> dims = constants_of(shape);
  check(dims.has_value(), "a parameter's extents are numbers");
  return new_state(build.graph, fmt::format("{}.{}", parameter->name, what), Tensor::zeros(parameter->dtype(), *dims));
}

// weight·a + (1 - weight)·b
Value* blend(NodeBuilder& build, Value* a, Value* b, double weight) {
  return build.add(build.mul(a, weight), build.mul(b, 1 - weight));
}

Value* root_of_sum(NodeBuilder& build, Value* value) {
  Value* squares = build.mul(value, value);
  return build.unary("Sqrt", value->rank() == 0 ? squares : build.sum(squares, ops::all_axes(value->rank()), false));
}

int64_t elements(const Value* value) {
  return count_of(*constants_of(value->shape()));
}

class SgdStep : public Optimizer {
 public:
  explicit SgdStep(const Sgd& rule) : rule_(rule) {}

  Value* step(NodeBuilder& build, const Update& u, Kept& kept) const override {
    Value* g = u.gradient;
    if (u.decays && rule_.weight_decay != 0) g = build.add(g, build.mul(u.parameter, rule_.weight_decay));
    if (rule_.momentum != 0) {
      Value* velocity = zero_state(build, u.parameter, "momentum", u.parameter->shape());
      Value* next = build.add(build.mul(velocity, rule_.momentum), g);
      kept.emplace_back(velocity, next);
      g = rule_.nesterov ? build.add(g, build.mul(next, rule_.momentum)) : next;
    }
    return build.sub(u.parameter, build.mul(g, u.rate));
  }

 private:
  Sgd rule_;
};

Value* inverse(NodeBuilder& build, Value* scalar) {
  return build.unary("Reciprocal", scalar);
}

// The moments of Adam and what follows it.
struct Moments {
  double beta1, beta2, eps;

  template <typename Rule>
  explicit Moments(const Rule& rule) : beta1(rule.beta1), beta2(rule.beta2), eps(rule.eps) {}

  // scale · m̂ / (√v̂ + eps), with the bias of the first steps taken out. What is the same for all elements is computed
  // once, so that each element takes one division. Null: a scale of 1.
  Value* direction(NodeBuilder& build, const Update& u, Value* g, Value* scale, Kept& kept) const {
    Value* first = zero_state(build, u.parameter, "momentum", u.parameter->shape());
    Value* second = zero_state(build, u.parameter, "variance", u.parameter->shape());
    Value* m = blend(build, first, g, beta1);
    // The squares are not those of the gradients' norm, which nothing shall hold until here.
    Value* v = build.add(build.mul(second, beta2), build.mul(build.mul(g, 1 - beta2), g));
    kept.emplace_back(first, m);
    kept.emplace_back(second, v);
    const auto correction = [&](double beta) {
      // In float64, since 1 - 0.999 has but few bits in float32.
      Value* time = build.cast(u.time, DType::float64);
      return build.cast(build.sub(1, build.emit("Pow", {build.number(time, beta), time})), u.time->dtype());
    };
    Value* spread =
        build.add(build.mul(build.unary("Sqrt", v), inverse(build, build.unary("Sqrt", correction(beta2)))), eps);
    Value* first_scale = scale ? build.div(scale, correction(beta1)) : inverse(build, correction(beta1));
    return build.div(build.mul(m, first_scale), spread);
  }
};

class AdamStep : public Optimizer {
 public:
  explicit AdamStep(const Adam& rule) : moments_(rule), decay_(rule.weight_decay), decoupled_(false) {}
  explicit AdamStep(const AdamW& rule) : moments_(rule), decay_(rule.weight_decay), decoupled_(true) {}

  Value* step(NodeBuilder& build, const Update& u, Kept& kept) const override {
    Value *g = u.gradient, *parameter = u.parameter;
    if (u.decays && decay_ != 0) {
      if (decoupled_)
        parameter = build.mul(parameter, build.sub(1, build.mul(u.rate, decay_)));
      else
        g = build.add(g, build.mul(parameter, decay_));
    }
    return build.sub(parameter, moments_.direction(build, u, g, u.rate, kept));
  }

 private:
  Moments moments_;
  double decay_;
  bool decoupled_;
};

class LambStep : public Optimizer {
 public:
  explicit LambStep(const Lamb& rule) : moments_(rule), decay_(rule.weight_decay) {}

  Value* step(NodeBuilder& build, const Update& u, Kept& kept) const override {
    Value* direction = moments_.direction(build, u, u.gradient, nullptr, kept);
    if (u.decays && decay_ != 0) direction = build.add(direction, build.mul(u.parameter, decay_));
    Value *size = root_of_sum(build, u.parameter), *length = root_of_sum(build, direction);
    Value* both = build.emit("And", {build.greater(size, 0), build.greater(length, 0)});
    Value* trust = build.where(both, build.div(size, build.where(both, length, 1.0)), 1.0);
    return build.sub(u.parameter, build.mul(direction, build.mul(u.rate, trust)));
  }

 private:
  Moments moments_;
  double decay_;
};

class LionStep : public Optimizer {
 public:
  explicit LionStep(const Lion& rule) : rule_(rule) {}

  Value* step(NodeBuilder& build, const Update& u, Kept& kept) const override {
    Value* momentum = zero_state(build, u.parameter, "momentum", u.parameter->shape());
    Value* direction = build.unary("Sign", blend(build, momentum, u.gradient, rule_.beta1));
    kept.emplace_back(momentum, blend(build, momentum, u.gradient, rule_.beta2));
    if (u.decays && rule_.weight_decay != 0)
      direction = build.add(direction, build.mul(u.parameter, rule_.weight_decay));
    return build.sub(u.parameter, build.mul(direction, u.rate));
  }

 private:
  Lion rule_;
};

// Shazeer and Stern (arXiv 1804.04235), as torch.optim.Adafactor has it.
class AdafactorStep : public Optimizer {
 public:
  explicit AdafactorStep(const Adafactor& rule) : rule_(rule) {}

  Value* step(NodeBuilder& build, const Update& u, Kept& kept) const override {
    Value *g = u.gradient, *parameter = u.parameter;
    const auto rank = static_cast<int64_t>(parameter->rank());
    const double root = std::sqrt(static_cast<double>(std::max<int64_t>(elements(parameter), 1)));
    Value* fresh = build.emit("Pow", {u.time, build.number(u.time, rule_.beta2_decay)});
    Value* rho = build.emit("Min", {u.rate, build.unary("Reciprocal", build.unary("Sqrt", u.time))});
    Value* size = build.mul(root_of_sum(build, parameter), 1 / root);
    Value* alpha = build.mul(build.emit("Max", {size, build.number(size, rule_.eps2)}), rho);
    if (u.decays && rule_.weight_decay != 0)
      parameter = build.mul(parameter, build.sub(1, build.mul(u.rate, rule_.weight_decay)));
    const auto toward = [&](Value* old, Value* now) { return build.add(old, build.mul(build.sub(now, old), fresh)); };
    Value* squares = build.mul(g, g);
    Value* variance = nullptr;
    if (rank > 1) {
      // The mean of each row and of each column, whose product over the mean of all estimates the elements.
      Shape row_shape = parameter->shape(), column_shape = parameter->shape();
      row_shape.back() = 1;
      column_shape[column_shape.size() - 2] = 1;
      Value* rows = zero_state(build, u.parameter, "row_variance", row_shape);
      Value* columns = zero_state(build, u.parameter, "column_variance", column_shape);
      Value* next_rows = toward(rows, build.mean(squares, {rank - 1}));
      Value* next_columns = toward(columns, build.mean(squares, {rank - 2}));
      kept.emplace_back(rows, next_rows);
      kept.emplace_back(columns, next_columns);
      Value* all = build.mean(next_rows, {rank - 2});
      variance = build.div(build.mul(next_rows, next_columns), build.emit("Max", {all, build.number(all, rule_.eps1)}));
    } else {
      Value* old = zero_state(build, u.parameter, "variance", parameter->shape());
      variance = toward(old, squares);
      kept.emplace_back(old, variance);
    }
    Value* bounded = build.emit("Max", {variance, build.number(variance, rule_.eps1 * rule_.eps1)});
    Value* direction = build.div(g, build.unary("Sqrt", bounded));
    Value* length = build.mul(root_of_sum(build, direction), 1 / (root * rule_.d));
    Value* step = build.div(alpha, build.emit("Max", {length, build.number(length, 1)}));
    return build.sub(parameter, build.mul(direction, step));
  }

 private:
  Adafactor rule_;
};

// Keller Jordan's Muon: the momentum of a matrix, made orthogonal by Newton and Schulz's iteration. A parameter that is
// not a matrix steps by AdamW.
class MuonStep : public Optimizer {
 public:
  explicit MuonStep(const Muon& rule)
      : rule_(rule),
        decay_(rule.weight_decay.value_or(0.1)),
        others_(AdamW{rule.beta1, rule.beta2, rule.eps, rule.weight_decay.value_or(AdamW{}.weight_decay)}) {}

  Value* step(NodeBuilder& build, const Update& u, Kept& kept) const override {
    if (u.parameter->rank() != 2) return others_.step(build, u, kept);
    Value* velocity = zero_state(build, u.parameter, "momentum", u.parameter->shape());
    Value* next = blend(build, velocity, u.gradient, rule_.momentum);
    kept.emplace_back(velocity, next);
    Value* x = rule_.nesterov ? blend(build, next, u.gradient, rule_.momentum) : next;
    const Dims extents = *constants_of(u.parameter->shape());
    const bool tall = extents[0] > extents[1];
    if (tall) x = build.turn(x);
    Value* size = root_of_sum(build, x);
    x = build.div(x, build.add(size, 1e-7));
    for (int i = 0; i < rule_.steps; ++i) {
      constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
      Value* square = build.emit("MatMul", {x, build.turn(x)});
      Value* mixed = build.add(build.mul(square, b), build.mul(build.emit("MatMul", {square, square}), c));
      x = build.add(build.mul(x, a), build.emit("MatMul", {mixed, x}));
    }
    if (tall) x = build.turn(x);
    const double scale = std::sqrt(
        std::max(1.0, static_cast<double>(extents[0]) / static_cast<double>(std::max<int64_t>(extents[1], 1))));
    Value* parameter = u.parameter;
    if (u.decays && decay_ != 0) parameter = build.mul(parameter, build.sub(1, build.mul(u.rate, decay_)));
    return build.sub(parameter, build.mul(x, build.mul(u.rate, scale)));
  }

 private:
  Muon rule_;
  double decay_;  // of matrices
  AdamStep others_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const tessera::Optimizer& rule) {
  struct Maker {
    std::unique_ptr<Optimizer> operator()(const Sgd& rule) const { return std::make_unique<SgdStep>(rule); }
    std::unique_ptr<Optimizer> operator()(const Adam& rule) const { return std::make_unique<AdamStep>(rule); }
    std::unique_ptr<Optimizer> operator()(const AdamW& rule) const { return std::make_unique<AdamStep>(rule); }
    std::unique_ptr<Optimizer> operator()(const Lamb& rule) const { return std::make_unique<LambStep>(rule); }
    std::unique_ptr<Optimizer> operator()(const Lion& rule) const { return std::make_unique<LionStep>(rule); }
    std::unique_ptr<Optimizer> operator()(const Adafactor& rule) const { return std::make_unique<AdafactorStep>(rule); }
    std::unique_ptr<Optimizer> operator()(const Muon& rule) const { return std::make_unique<MuonStep>(rule); }
  };
  return std::visit(Maker{}, value_of(rule));
}

}  // namespace tessera::train
