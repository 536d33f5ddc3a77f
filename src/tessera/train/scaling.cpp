#include "tessera/train/scaling.h"

#include "tessera/base/error.h"
#include "tessera/train/spec.h"
#include "tessera/train/step.h"

namespace tessera::train {

Scaling::Scaling(ops::NodeBuilder& build, const std::string& text) : build_(build) {
  if (text.empty()) return;
  if (!text.starts_with("dynamic")) {
    Spec spec("scale:scale=" + text, "loss-scale");
    fixed_ = spec.number("scale", 1);
    spec.finish();
    if (!(fixed_ > 0)) fail("loss-scale", "'{}' is no scale; give a number above 0, or 'dynamic'", text);
    return;
  }
  Spec spec(text, "loss-scale");
  const double init = spec.number("init", 65536);
  growth_ = spec.number("growth", 2);
  backoff_ = spec.number("backoff", 0.5);
  interval_ = spec.number("interval", 2000);
  spec.finish();
  if (spec.name() != "dynamic" || !(init > 0) || growth_ < 1 || !(backoff_ > 0) || backoff_ >= 1 || interval_ < 1)
    fail("loss-scale", "'{}' is no dynamic scale: init is above 0, growth at least 1, backoff between 0 and 1", text);
  dynamic_ = true;
  scale_ = build.graph.add_state(kScale, Tensor::of(DType::float32, {}, std::vector<float>{static_cast<float>(init)}));
  good_ = build.graph.add_state(kGood, Tensor::of(DType::int64, {}, std::vector<int64_t>{0}));
}

Value* Scaling::scale(DType type) {
  return dynamic_ ? build_.cast(scale_, type) : build_.graph.constant_scalar(type, fixed_);
}

Value* Scaling::unscaled(Value* gradient) {
  if (!dynamic_ && fixed_ == 1) return gradient;
  return build_.div(gradient, scale(gradient->dtype()));
}

void Scaling::watch(Value* gradient) {
  if (!dynamic_) return;
  Value* bad = build_.emit("Or", {build_.unary("IsNaN", gradient), build_.unary("IsInf", gradient)});
  bad = build_.cast(bad, DType::float32);
  seen_.push_back(bad->rank() == 0
                      ? bad
                      : build_.emit("ReduceMax", {bad, build_.graph.constant_int64(ops::all_axes(bad->rank()))},
                                    {{"keepdims", int64_t{0}, ""}}));
}

Value* Scaling::overflow() {
  if (!overflow_) overflow_ = build_.greater(seen_.size() == 1 ? seen_[0] : build_.emit("Max", seen_), 0);
  return overflow_;
}

Value* Scaling::unless_overflow(Value* stepped, Value* before) {
  return dynamic_ ? build_.where(overflow(), before, stepped) : stepped;
}

std::vector<std::pair<Value*, Value*>> Scaling::next() {
  if (!dynamic_) return {};
  Value* count = build_.add(good_, 1);
  Value* grows = build_.emit("GreaterOrEqual", {count, build_.number(count, interval_)});
  Value* grown = build_.where(grows, build_.mul(scale_, growth_), scale_);
  Value* zero = build_.number(good_, 0);
  return {{scale_, build_.where(overflow(), build_.mul(scale_, backoff_), grown)},
          {good_, build_.where(overflow(), zero, build_.where(grows, zero, count))}};
}

}  // namespace tessera::train
