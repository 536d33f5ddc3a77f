#include "tessera/train/scaling.h"

#include "tessera/base/error.h"
#include "tessera/train/names.h"
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
  scale_ = new_state(build.graph, kScale, Tensor::of(DType::float32, {}, std::vector<float>{static_cast<float>(init)}));
  good_ = new_state(build.graph, kGood, Tensor::of(DType::int64, {}, std::vector<int64_t>{0}));
}

Value* Scaling::scale(DType type) {
  return dynamic_ ? build_.cast(scale_, type) : build_.graph.constant_scalar(type, fixed_);
}

Value* Scaling::unscaled(Value* gradient) {
  if (!dynamic_ && fixed_ == 1) return gradient;
  return build_.div(gradient, scale(gradient->dtype()));
}

std::vector<std::pair<Value*, Value*>> Scaling::next(Value* good) {
  if (!dynamic_) return {};
  Value* count = build_.add(good_, 1);
  Value* grows = build_.emit("GreaterOrEqual", {count, build_.number(count, interval_)});
  constexpr double kLargest = 0x1p+126;  // a scale that is infinite could never fall again
  Value* larger =
      build_.emit("Min", {build_.mul(scale_, growth_), build_.emit("Max", {scale_, build_.number(scale_, kLargest)})});
  Value* grown = build_.where(grows, larger, scale_);
  Value* zero = build_.number(good_, 0);
  return {{scale_, build_.where(good, grown, build_.mul(scale_, backoff_))},
          {good_, build_.where(good, build_.where(grows, zero, count), zero)}};
}

}  // namespace tessera::train
