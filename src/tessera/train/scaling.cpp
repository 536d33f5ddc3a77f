#include "tessera/train/scaling.h"

#include "tessera/base/error.h"
#include "tessera/train/names.h"
#include "tessera/train/spec.h"
#include "tessera/train/step.h"

namespace tessera::train {

Scaling::Scaling(ops::NodeBuilder& build, const std::string& text) : build_(build) {
  if (text.empty()) return;
  if (!text.starts_with("dynamic")) {
    const std::optional<double> fixed = Bounds::above(0).parse(text);
    if (!fixed) fail("loss-scale", "'{}' is not a scale; give {}, or 'dynamic'", text, Bounds::above(0).text());
    fixed_ = *fixed;
    return;
  }
  Spec spec(text, "loss-scale");
  if (spec.name() != "dynamic") fail("loss-scale", "'{}' is not a scale; give a number, or 'dynamic'", text);
  const double init = spec.number("init", 65536, Bounds::above(0));
  growth_ = spec.number("growth", 2, Bounds::at_least(1));
  backoff_ = spec.number("backoff", 0.5, {.least = 0, .most = 1, .above_least = true, .below_most = true});
  interval_ = static_cast<double>(spec.whole("interval", 2000, Bounds::at_least(1)));
  spec.finish();
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
