// Numbers that losses, optimizers, schedules and scales take: within bounds, finite, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/train/loss.h"
#include "tessera/train/optimizer.h"
#include "tessera/train/scaling.h"
#include "tessera/train/schedule.h"
#include "tessera/train/step.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;

// "accepted", or the message.
template <typename Make>
std::string refusal(Make make) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "accepted";
}

std::string of_optimizer(const std::string& text) {
  return refusal([&] { make_optimizer(text); });
}
std::string of_schedule(const std::string& text) {
  return refusal([&] { Schedule schedule(text); });
}
std::string of_loss(const std::string& text) {
  return refusal([&] { losses_of(text); });
}
std::string of_scale(const std::string& text) {
  return refusal([&] {
    Graph graph;
    ops::NodeBuilder build(graph, "test");
    Scaling scaling(build, text);
  });
}

constexpr const char* kNoNumbers[] = {"nan", "-nan", "inf", "-inf", "1e39", "-1e39", "1e400", "1e", "x", "0x10"};

/// What a key takes, and what it does not.
struct Key {
  std::string name;
  std::vector<std::string> good, bad;
};

const Key kNotNegative = {"", {"0", "0.1", "10"}, {"-1", "-1e-9"}};
const Key kBelowOne = {"", {"0", "0.5", "0.9999"}, {"-0.1", "1", "2"}};
const Key kFlag = {"", {"true", "false", "0", "1"}, {"2", "-1", "yes"}};

Key key(const std::string& name, Key of) {
  of.name = name;
  return of;
}

void expect_keys(const std::string& before, const std::vector<Key>& keys,
                 std::string (*refusal_of)(const std::string&)) {
  for (const Key& key : keys) {
    const std::string begin = before + key.name + "=";
    for (const std::string& word : key.good) EXPECT_EQ(refusal_of(begin + word), "accepted");
    for (const std::string& word : key.bad)
      EXPECT_THAT(refusal_of(begin + word), HasSubstr(key.name + " must be")) << begin << word;
    for (const char* word : kNoNumbers)
      EXPECT_THAT(refusal_of(begin + word), HasSubstr(key.name + " must be")) << begin << word;
  }
}

TEST(Numbers, OfOptimizersHaveBounds) {
  const std::vector<Key> adam = {key("beta1", kBelowOne), key("beta2", kBelowOne), key("eps", kNotNegative),
                                 key("weight_decay", kNotNegative)};
  expect_keys("sgd:", {key("momentum", kNotNegative), key("weight_decay", kNotNegative)}, of_optimizer);
  expect_keys("sgd:momentum=0.9,", {key("nesterov", kFlag)}, of_optimizer);
  for (const char* name : {"adam:", "adamw:", "lamb:", "muon:"}) expect_keys(name, adam, of_optimizer);
  expect_keys("lion:", {key("beta1", kBelowOne), key("beta2", kBelowOne), key("weight_decay", kNotNegative)},
              of_optimizer);
  expect_keys("adafactor:",
              {key("beta2_decay", {"", {"-0.8", "0"}, {"0.1"}}), key("eps1", {"", {"0", "1e-9"}, {"-1", "1.5"}}),
               key("eps2", kNotNegative), key("d", {"", {"0.5", "1"}, {"0", "-1"}}), key("weight_decay", kNotNegative)},
              of_optimizer);
  expect_keys("muon:",
              {key("momentum", kNotNegative), key("nesterov", kFlag),
               key("steps", {"", {"1", "5", "99"}, {"0", "-1", "100", "2.5", "99999999999999999999"}})},
              of_optimizer);
}

TEST(Numbers, OfSchedulesHaveBounds) {
  const Key fall = {"", {"1", "100"}, {"0", "-1"}};
  expect_keys("", {key("peak", kNotNegative)}, of_schedule);
  expect_keys("peak=1e-3,",
              {key("warmup", kNotNegative), key("stable", kNotNegative), key("min", kNotNegative), key("cosine", fall),
               key("linear", fall)},
              of_schedule);
  for (const char* rate : {"0", "3e-4", "1"}) EXPECT_EQ(of_schedule(rate), "accepted");
  for (const char* rate : kNoNumbers) EXPECT_THAT(of_schedule(rate), HasSubstr("is not a learning rate")) << rate;
  for (const char* rate : {"-1", ""}) EXPECT_THAT(of_schedule(rate), HasSubstr("is not a learning rate")) << rate;
  for (float rate : {-1.F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_THAT(refusal([&] { Schedule schedule(std::vector<float>{0.1F, rate}); }), HasSubstr("of step 2"));
}

TEST(Numbers, OfLossesHaveBounds) {
  const Key whole = {"", {"-100", "0", "5"}, {"0.5", "99999999999999999999"}};
  const Key axis = {"", {"-1", "0", "1"}, {"0.5"}};
  expect_keys(
      "cross-entropy:",
      {key("label_smoothing", {"", {"0", "1"}, {"-0.1", "1.1"}}), key("ignore_index", whole), key("axis", axis)},
      of_loss);
  expect_keys("z-loss:", {key("ignore_index", whole), key("axis", axis)}, of_loss);
  for (const char* weight : kNoNumbers)
    EXPECT_THAT(of_loss(std::string(weight) + "*mse"), HasSubstr("is not a weight")) << weight;
}

TEST(Numbers, OfScalesHaveBounds) {
  expect_keys("dynamic:",
              {key("init", {"", {"1", "65536"}, {"0", "-1"}}), key("growth", {"", {"1", "2"}, {"0.5"}}),
               key("backoff", {"", {"0.5"}, {"0", "1"}}), key("interval", {"", {"1"}, {"0", "1.5", "-1"}})},
              of_scale);
  for (const char* scale : {"1", "0.5", "65536", "dynamic"}) EXPECT_EQ(of_scale(scale), "accepted");
  for (const char* scale : kNoNumbers) EXPECT_THAT(of_scale(scale), HasSubstr("is not a scale")) << scale;
  for (const char* scale : {"0", "-1", "dynamics"}) EXPECT_THAT(of_scale(scale), HasSubstr("is not a scale")) << scale;
}

TEST(Numbers, OfStepsHaveBounds) {
  const OnnxModel model = parse_text("g (float[b, 6] x) => (float[b, 5] y) <float[6, 5] w> {\n  y = MatMul (x, w)\n}");
  const auto with = [&](auto change) {
    return refusal([&] {
      StepOptions options;
      options.loss = "mse";
      change(options);
      make_step(model, options);
    });
  };
  EXPECT_EQ(with([](StepOptions& o) { o.clip = 1, o.average = 0.9, o.rate_factors = {{"w", 0.5}}; }), "accepted");
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (double wrong : {nan, infinity, -1.0, 1e39}) {
    EXPECT_THAT(with([&](StepOptions& o) { o.clip = wrong; }), HasSubstr("clip")) << wrong;
    EXPECT_THAT(with([&](StepOptions& o) { o.average = wrong; }), HasSubstr("average")) << wrong;
    EXPECT_THAT(with([&](StepOptions& o) { o.rate_factors = {{"w", wrong}}; }), HasSubstr("factor of 'w'")) << wrong;
  }
  EXPECT_THAT(with([&](StepOptions& o) { o.average = 1; }), HasSubstr("average"));
  for (const char* rule : {"normal:nan", "normal:-1", "normal:0.1,inf", "uniform:0,1e39", "constant:1e400",
                           "normal:", "normal:0.1,", "normal:0.1 ", "uniform:1,0x2"})
    EXPECT_THAT(with([&](StepOptions& o) { o.init = {{"w", rule}}; }), HasSubstr("`init`")) << rule;
}

}  // namespace
}  // namespace tessera::train
