#include "tessera/train/schedule.h"

#include <numbers>

#include "tessera/base/error.h"
#include "tessera/train/spec.h"

namespace tessera {
namespace train {

Schedule::Schedule(const LearningRateRule& rule) {
  if (const auto* text = std::get_if<std::string>(&rule.held()))
    read(*text);
  else
    take(std::get<LearningRate>(rule.held()));
}

void Schedule::take(const LearningRate& rate) {
  const auto require = [](std::string_view key, double number) {
    if (!Bounds::at_least(0).hold(number))
      fail("lr", "'{}={}' of a learning rate: {} must be {}", key, number, key, Bounds::at_least(0).text());
    return number;
  };
  if (rate.cosine != 0 && rate.linear != 0) fail("lr", "a learning rate has both cosine and linear; give one of them");
  peak_ = require("peak", rate.peak);
  warmup_ = require("warmup", static_cast<double>(rate.warmup));
  stable_ = require("stable", static_cast<double>(rate.stable));
  cosine_ = rate.cosine != 0;
  fall_ = require("cosine", static_cast<double>(rate.cosine)) + require("linear", static_cast<double>(rate.linear));
  least_ = require("min", rate.min);
}

void Schedule::read(const std::string& text) {
  const Bounds rates = Bounds::at_least(0), steps = Bounds::at_least(0), fall = Bounds::at_least(1);
  if (text.find('=') == std::string::npos) {
    const std::optional<double> rate = rates.parse(text);
    if (!rate) fail("lr", "'{}' is not a learning rate; it must be {}", text, rates.text());
    peak_ = *rate;
    return;
  }
  Spec spec("schedule:" + text, "lr");
  if (!spec.has("peak")) fail("lr", "'{}' has no 'peak'; write for example warmup=10,peak=3e-4,cosine=100", text);
  if (spec.has("cosine") && spec.has("linear")) fail("lr", "'{}' has both cosine and linear; give one of them", text);
  peak_ = spec.number("peak", 0, rates);
  warmup_ = spec.number("warmup", 0, steps);
  stable_ = spec.number("stable", 0, steps);
  cosine_ = spec.has("cosine");
  fall_ = spec.number("cosine", 0, fall) + spec.number("linear", 0, fall);
  least_ = spec.number("min", 0, rates);
  spec.finish();
}

Schedule::Schedule(std::vector<float> rates) : rates_(std::move(rates)) {
  if (rates_.empty()) fail("lr", "the list of learning rates is empty; give one for each step");
  for (size_t step = 0; step < rates_.size(); ++step)
    if (!Bounds::at_least(0).hold(static_cast<double>(rates_[step])))
      fail("lr", "the learning rate of step {} is {}; it must be {}", step + 1, rates_[step],
           Bounds::at_least(0).text());
}

Value* Schedule::at(ops::NodeBuilder& build, Value* step) const {
  Graph& graph = build.graph;
  if (!rates_.empty()) {
    const auto count = static_cast<int64_t>(rates_.size());
    Value* table = graph.add_constant("learning_rates", Tensor::of(DType::float32, {count}, rates_));
    Value* row = build.emit("Min", {step, graph.constant_int64({count - 1}, true)});
    return build.emit("Gather", {table, row}, {{"axis", int64_t{0}, ""}});
  }
  Value* rate = graph.constant_scalar(DType::float32, peak_);
  if (warmup_ == 0 && fall_ == 0) return build.emit("Identity", {rate});
  Value* t = build.cast(step, DType::float32);
  if (fall_ > 0) {
    Value* part = build.mul(build.add(t, -(warmup_ + stable_)), 1 / fall_);
    part = build.emit("Clip", {part, build.number(part, 0), build.number(part, 1)});
    if (cosine_) part = build.mul(build.sub(1, build.unary("Cos", build.mul(part, std::numbers::pi))), 0.5);
    rate = build.add(build.mul(part, least_ - peak_), peak_);
  }
  if (warmup_ > 0) rate = build.where(build.less(t, warmup_), build.mul(build.add(t, 1), peak_ / warmup_), rate);
  return rate;
}

}  // namespace train

inline namespace v1 {

LearningRate::operator std::string() const {
  std::string text = fmt::format("peak={},warmup={},stable={},min={}", peak, warmup, stable, min);
  if (cosine != 0) text += fmt::format(",cosine={}", cosine);
  if (linear != 0) text += fmt::format(",linear={}", linear);
  return text;
}

}  // namespace v1
}  // namespace tessera
