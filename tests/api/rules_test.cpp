// Typed forms of texts mean what the texts mean.
#include "tessera/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST_F(Rules, refuse_what_no_text_holds) {
  EXPECT_THAT(message_of([] { (void)std::string(CrossEntropy{.tensor = "a,b"}); }), HasSubstr("'a,b' cannot be named"));
  Training training;
  training.optimizer = AdamW{.beta1 = 1.5};
  EXPECT_THAT(message_of([&] { trained(training); }), HasSubstr("'beta1=1.5'"));
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
