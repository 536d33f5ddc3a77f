// Typed forms of texts mean what the texts mean.
#include "tessera/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/in_parts.h"
#include "api/trained_on_meshes.h"

namespace tessera::test {
namespace {

using in_parts::message_of;
using testing::HasSubstr;

class Rules : public testing::Test, protected SmallModels {
 protected:
  /// The parameters after two steps.
  Tensors trained(const Training& training) {
    const Model model = this->model(R"(
g (float[3, 4] x) => (float[3, 2] y) <float[4, 2] w, float[2] b> {
  p = MatMul (x, w)
  y = Add (p, b)
})");
    std::vector<Tensors> batches;
    for (int step = 0; step < 2; ++step)
      batches.push_back({{"x", ramp({3, 4}, step)}, {"labels", Tensor::of<int64_t>({3}, {0, 1, step})}});
    Session session(program_of(model, training, {"dp=1", ""}), one_thread());
    return run_steps(session, batches).states;
  }
  void expect_same(const Training& typed, const Training& text) {
    const Tensors made = trained(typed), wanted = trained(text);
    ASSERT_EQ(made.size(), wanted.size());
    for (const auto& [name, tensor] : wanted)
      EXPECT_EQ(std::memcmp(made.at(name).data, tensor.data, tensor.bytes), 0) << typed.optimizer << ": " << name;
  }
};

TEST_F(Rules, optimizers_begin_with_the_defaults_of_their_texts) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {Sgd{}, "sgd"},   {Adam{}, "adam"},           {AdamW{}, "adamw"}, {Lamb{}, "lamb"},
      {Lion{}, "lion"}, {Adafactor{}, "adafactor"}, {Muon{}, "muon"}};
  for (const auto& [typed, text] : all) {
    Training by_type, by_text;
    by_type.optimizer = typed;
    by_text.optimizer = text;
    expect_same(by_type, by_text);
  }
}

TEST_F(Rules, are_the_texts_that_they_stand_for) {
  const std::string sgd = Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 1e-4};
  EXPECT_EQ(sgd, "sgd:momentum=0.9,nesterov=true,weight_decay=0.0001");
  Training typed, text;
  typed.learning_rate = LearningRate{.peak = 3e-2, .warmup = 1, .cosine = 4, .min = 1e-3};
  text.learning_rate = "warmup=1,peak=3e-2,cosine=4,min=1e-3";
  typed.loss = sum_of({CrossEntropy{.label_smoothing = 0.1}, ZLoss{.weight = 1e-2}, OtherLoss{"mean", "p"}});
  text.loss = "cross-entropy:label_smoothing=0.1+1e-2*z-loss+mean:p";
  expect_same(typed, text);
  EXPECT_EQ(std::string(OtherLoss{.name = "mse", .tensor = "y", .labels = "z", .weight = 2}), "2*mse:y,labels=z");
  EXPECT_EQ(annotate("w", {{}, {"tp"}, {"dp", "tp"}}).text, "w=[-, tp, {dp,tp}]");
  EXPECT_EQ(place("h.1.*", {{"pp", 1}, {"dp", 0}}).text, "h.1.*=pp:1,dp:0");
}

TEST_F(Rules, split_as_they_say) {
  const Model model = this->model("g (float[4, 4] x) => (float[4, 4] y) <float[4, 4] w> { y = MatMul (x, w) }");
  Plan plan;
  plan.annotations = {annotate("w", {{}, {"tp"}})};
  const Program program = compile(model, Mesh({{"tp", 2}}), plan);
  EXPECT_EQ(program.text(), compile(model, Mesh::parse("tp=2"), {.annotations = {{"w=[-, tp]"}}}).text());
}

TEST_F(Rules, become_texts_where_a_text_holds_them) {
  for (const char* name : {"a,b", "a+b", "a=b", "a*b", "a b"})
    EXPECT_THAT(message_of([&] { (void)std::string(CrossEntropy{.tensor = name}); }), HasSubstr("cannot name")) << name;
  const Loss given = "  mse +1e-4*z-loss";
  EXPECT_EQ(std::string(given), "  mse +1e-4*z-loss");
  EXPECT_EQ(std::string(sum_of({given, "mean:p"})), "mse+0.0001*z-loss:ignore_index=-100+mean:p");
}

TEST_F(Rules, name_tensors_that_no_text_holds) {
  const Model model = this->model(R"(
g (float[3, 4] x) => (float[3, 2] "y, z = 2*u") <float[4, 2] w> {
  "y, z = 2*u" = MatMul (x, w)
})");
  Training training;
  training.loss = CrossEntropy{.tensor = "y, z = 2*u"};
  training.optimizer = "sgd";
  Session session(program_of(model, training, {"dp=1", ""}), one_thread());
  const Tensors batch = {{"x", ramp({3, 4}, 1)}, {"labels", Tensor::of<int64_t>({3}, {0, 1, 1})}};
  const double named = run_steps(session, {batch}).losses[0];
  training.loss = "cross-entropy";
  Session other(program_of(model, training, {"dp=1", ""}), one_thread());
  EXPECT_EQ(named, run_steps(other, {batch}).losses[0]);
}

TEST_F(Rules, are_refused_out_of_bounds) {
  const auto refused = [&](auto change) {
    Training training;
    change(training);
    return message_of([&] { trained(training); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refused([](Training& t) { t.optimizer = AdamW{.beta1 = 1.5}; }), HasSubstr("'beta1=1.5'"));
  EXPECT_THAT(refused([&](Training& t) { t.optimizer = Sgd{.momentum = nan}; }), HasSubstr("momentum must be"));
  EXPECT_THAT(refused([](Training& t) { t.optimizer = Sgd{.nesterov = true}; }), HasSubstr("needs a momentum"));
  EXPECT_THAT(refused([](Training& t) { t.optimizer = Muon{.steps = 0}; }), HasSubstr("steps must be"));
  EXPECT_THAT(refused([](Training& t) { t.learning_rate = LearningRate{.cosine = -4}; }), HasSubstr("cosine must be"));
  EXPECT_THAT(refused([](Training& t) { t.learning_rate = LearningRate{.cosine = 4, .linear = 4}; }),
              HasSubstr("both cosine and linear"));
  EXPECT_THAT(refused([](Training& t) { t.loss = CrossEntropy{.label_smoothing = 2}; }),
              HasSubstr("label_smoothing must be"));
  EXPECT_THAT(refused([&](Training& t) { t.loss = CrossEntropy{.weight = nan}; }), HasSubstr("is not a weight"));
  EXPECT_THAT(refused([](Training& t) { t.loss = OtherLoss{"mse+mean"}; }), HasSubstr("there is no loss 'mse+mean'"));
  EXPECT_THAT(refused([](Training& t) { t.loss = OtherLoss{.name = "mean", .labels = "x"}; }),
              HasSubstr("has no 'labels'"));
  EXPECT_THAT(refused([](Training& t) { t.loss = LossSum{}; }), HasSubstr("has no terms"));
}

TEST_F(Rules, refuse_names_that_an_entry_of_a_plan_cannot_hold) {
  for (const char* name : {"", " w", "w "}) EXPECT_NE(message_of([&] { annotate(name, {{"tp"}}); }), "") << name;
  EXPECT_NE(message_of([] { place("", {{"pp", 1}}); }), "");
  for (const char* axis : {"", "-", "?", "...", "tp,dp", "{tp}", "tp]", "6{tp}", "tp:2", "tp:(0)2", " tp", "2"}) {
    EXPECT_THAT(message_of([&] { annotate("w", {{axis}}); }), HasSubstr("is not an axis")) << axis;
    EXPECT_THAT(message_of([&] { annotate("w", {{"dp", axis}}); }), HasSubstr("is not an axis")) << axis;
    EXPECT_THAT(message_of([&] { place("w", {{axis, 0}}); }), HasSubstr("is not an axis")) << axis;
  }
  EXPECT_THAT(message_of([] { place("w", {{"pp", -1}}); }), HasSubstr("has no index -1"));
  EXPECT_EQ(annotate("a=[b]", {{"tp:(2)2"}, {}}).text, "a=[b]=[tp:(2)2, -]");
  EXPECT_EQ(place("a=pp:1", {{"tp:(2)2", 1}}).text, "a=pp:1=tp:(2)2:1");
}

TEST_F(Rules, place_what_they_name) {
  const Model model = this->model(R"(
g (float[4, 4] x) => (float[4, 4] y) {
  "a=pp:1" = Relu (x)
  y = Neg ("a=pp:1")
})");
  Plan plan;
  plan.places = {place("a=pp:1", {{"pp", 1}})};
  EXPECT_THAT(compile(model, Mesh({{"pp", 2}}), plan).text(), HasSubstr("at(pp=1)"));
}

}  // namespace
}  // namespace tessera::test
