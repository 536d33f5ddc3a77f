// Classes are the dimension of the logits that labels lack, as PyTorch has it for [N, C], [N, C, d] and [N, C, H, W],
// and as decoders have it, last: losses and gradients of every layout are those of the definition, written out here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "api/trained_on_meshes.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kIgnored = -100;

struct Case {
  Dims logits;
  size_t axis;       // of the classes
  std::string key;   // of the loss, where the labels do not say it
  std::string bias;  // shape of the parameter, which has one number for each class
};

// Logits are x + bias; bias has one number for each class.
std::string text_of(const Case& c) {
  std::string extents;
  for (size_t d = 1; d < c.logits.size(); ++d) extents += ", " + std::to_string(c.logits[d]);
  return "g (float[b" + extents + "] x) => (float[b" + extents + "] y) <float[" + c.bias +
         "] bias> {\n  y = Add (x, bias)\n}";
}

size_t count(Dims::const_iterator begin, Dims::const_iterator end) {
  return static_cast<size_t>(std::accumulate(begin, end, int64_t{1}, std::multiplies<>()));
}

struct Expected {
  double loss = 0;
  std::vector<double> gradient;  // of each class's bias
};

// The mean over all labels that count of (1-e)·(-log p_label) + e·mean(-log p), and its derivative by the biases.
Expected by_definition(const Case& c, const Tensor& x, const Tensor& bias, const Tensor& labels, double smoothing) {
  const auto axis = c.logits.begin() + static_cast<std::ptrdiff_t>(c.axis);
  const size_t outer = count(c.logits.begin(), axis), classes = static_cast<size_t>(*axis),
               inner = count(axis + 1, c.logits.end());
  Expected expected{0, std::vector<double>(classes)};
  double counted = 0;
  for (size_t row = 0; row < outer * inner; ++row) {
    const int64_t label = labels.as<int64_t>()[row];
    if (label == kIgnored) continue;
    ++counted;
    std::vector<double> p(classes);
    double sum = 0;
    const auto logit = [&](size_t k) {
      return static_cast<double>(x.as<float>()[(row / inner * classes + k) * inner + row % inner]) +
             bias.as<float>()[k];
    };
    for (size_t k = 0; k < classes; ++k) sum += p[k] = std::exp(logit(k));
    for (size_t k = 0; k < classes; ++k) {
      const double wanted =
          (static_cast<int64_t>(k) == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      expected.loss += wanted * (std::log(sum) - logit(k));
      expected.gradient[k] += p[k] / sum - wanted;
    }
  }
  expected.loss /= counted;
  for (double& g : expected.gradient) g /= counted;
  return expected;
}

std::vector<Case> cases() {
  return {{{4, 6}, 1, "", "6"},
          {{4, 6, 5}, 1, "", "6, 1"},
          {{4, 5, 6}, 2, "", "6"},
          {{4, 6, 3, 5}, 1, "", "6, 1, 1"},
          {{4, 6, 6, 6}, 1, "axis=1", "6, 1, 1"},
          {{4, 6, 6, 6}, 3, "axis=-1", "6"},
          {{4, 6, 6}, 1, "axis=1", "6, 1"},
          {{4, 3, 6, 5}, 2, "", "6, 1"}};
}

class ClassAxis : public testing::Test, protected SmallModels {
 protected:
  Tensors batch_of(const Case& c) {
    Dims rows = c.logits;
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(c.axis));
    Tensor labels = classes(rows, 6, 3);
    std::vector<int64_t> given(labels.as<int64_t>().begin(), labels.as<int64_t>().end());
    given[1] = kIgnored;
    return {{"x", scattered(c.logits, 2, 2)}, {"labels", integers(rows, given)}};
  }

  static Training training_of(const Case& c, const Tensors& batch, double smoothing) {
    Training training;
    training.optimizer = "sgd";
    training.loss = "cross-entropy" + std::string(c.key.empty() && smoothing == 0 ? "" : ":") + c.key +
                    (c.key.empty() || smoothing == 0 ? "" : ",") +
                    (smoothing == 0 ? "" : "label_smoothing=" + std::to_string(smoothing));
    training.sizes = {{"b", 4}};
    training.label_dims = {{"labels", batch.at("labels").dims}};
    return training;
  }

  static void expect(const Trained& made, const Expected& expected) {
    EXPECT_NEAR(made.losses[0], expected.loss, 1e-5 * expected.loss);
    const auto gradient = made.first_gradients.at("bias").as<float>();
    for (size_t k = 0; k < expected.gradient.size(); ++k) EXPECT_NEAR(gradient[k], expected.gradient[k], 1e-6) << k;
  }

  std::string refusal(const std::string& text, const Training& training) {
    try {
      training_step(model(text), training);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
};

// Worked out by hand: of logits [[0, 1], [0, 0]] and labels [1, 1], columns give log 2 and log(1 + e), rows log(1 +
// 1/e) and log 2.
TEST_F(ClassAxis, IsWhereTheLossSaysIt) {
  const Model model = this->model("g (float[1, 2, 2] x) => (float[1, 2, 2] y) <float[1] w> {\n  y = Mul (x, w)\n}", 0);
  for (const auto& [key, loss] : {std::pair{"axis=1", 1.0032}, {"axis=2", 0.5032}}) {
    Training training;
    training.loss = std::string("cross-entropy:") + key;
    training.init = {{"w", "ones"}};
    const Trained made = train(model, training, {"dp=1", ""},
                               {{{"x", floats({1, 2, 2}, {0, 1, 0, 0})}, {"labels", integers({1, 2}, {1, 1})}}});
    EXPECT_NEAR(made.losses[0], loss, 1e-4) << key;
  }
}

TEST_F(ClassAxis, IsTheDimensionThatLabelsLackOnEveryLayout) {
  for (const Case& c : cases())
    for (double smoothing : {0.0, 0.25}) {
      const Model model = this->model(text_of(c));
      const Tensors batch = batch_of(c);
      const Training training = training_of(c, batch, smoothing);
      SCOPED_TRACE(text_of(c) + " " + std::string(training.loss));
      const Tensor bias = scattered({6}, 1, 0.5F);
      const Expected expected = by_definition(c, batch.at("x"), bias, batch.at("labels"), smoothing);
      expect(train(model, training, {"dp=1", ""}, {batch}), expected);
      for (const Layout& layout : all_layouts()) {
        SCOPED_TRACE(layout.mesh + " " + layout.presets);
        expect(train(model, training, layout, {batch}), expected);
      }
    }
}

// The loss of split classes: each rank has some of them.
TEST_F(ClassAxis, MayBeSplitOverRanks) {
  for (const Case& c : cases()) {
    const Model model = this->model(text_of(c));
    const Tensors batch = batch_of(c);
    const Expected expected = by_definition(c, batch.at("x"), scattered({6}, 1, 0.5F), batch.at("labels"), 0);
    for (const auto& [mesh, first] : {std::pair{"tp=2", "-"}, {"tp=4", "-"}, {"dp=2,tp=2", "dp"}}) {
      std::string annotation = std::string("y=[") + first;
      for (size_t d = 1; d < c.logits.size(); ++d) annotation += d == c.axis ? ",tp" : ",-";
      annotation += "]";
      SCOPED_TRACE(text_of(c) + " " + mesh + " " + annotation);
      Session session(program_of(model, training_of(c, batch, 0), {mesh, "none"}, {annotation}), one_thread());
      expect(run_steps(session, {batch}), expected);
    }
  }
}

TEST_F(ClassAxis, IsThatOfMicroBatches) {
  for (const Case& c : cases()) {
    const Model model = this->model(text_of(c));
    const Tensors batch = batch_of(c);
    Training training = training_of(c, batch, 0);
    const Trained whole = train(model, training, {"dp=1", ""}, {batch});
    training.micro_batches = 2;
    SCOPED_TRACE(text_of(c));
    for (const char* mesh : {"dp=1", "dp=2", "tp=2"}) expect_near(train(model, training, {mesh, ""}, {batch}), whole);
  }
}

// z-loss takes the classes where cross-entropy does.
TEST_F(ClassAxis, IsThatOfZLossToo) {
  const Case c = {{4, 6, 3, 5}, 1, "", "6, 1, 1"};
  const Model model = this->model(text_of(c));
  const Tensors batch = batch_of(c);
  Training training = training_of(c, batch, 0);
  training.loss = "cross-entropy+0.5*z-loss";
  const Trained one = train(model, training, {"dp=1", ""}, {batch});
  double sum = 0, counted = 0;
  for (size_t row = 0; row < 60; ++row) {
    if (batch.at("labels").as<int64_t>()[row] == kIgnored) continue;
    double exponentials = 0;
    for (size_t k = 0; k < 6; ++k)
      exponentials += std::exp(static_cast<double>(batch.at("x").as<float>()[(row / 15 * 6 + k) * 15 + row % 15]) +
                               scattered({6}, 1, 0.5F).as<float>()[k]);
    sum += std::pow(std::log(exponentials), 2), ++counted;
  }
  const Expected plain = by_definition(c, batch.at("x"), scattered({6}, 1, 0.5F), batch.at("labels"), 0);
  EXPECT_NEAR(one.losses[0], plain.loss + 0.5 * sum / counted, 1e-4);
  for (const Layout& layout : all_layouts()) expect_near(train(model, training, layout, {batch}), one);
}

// Labels that the model declares say it, too; an evaluation finds the same dimension.
TEST_F(ClassAxis, IsFoundByDeclaredLabels) {
  const std::string body = " <float[6, 1] bias> {\n  z = Add (x, bias)\n  y = Identity (z)\n}";
  const Model model = this->model("g (float[b, 6, s] x, int64[b, s] labels) => (float[b, 6, s] y)" + body);
  const Case c = {{4, 6, 5}, 1, "", "6, 1"};
  const Tensors batch = batch_of(c);
  Training training;
  training.optimizer = "sgd";
  const Expected expected = by_definition(c, batch.at("x"), scattered({6}, 1, 0.5F), batch.at("labels"), 0);
  for (const char* mesh : {"dp=1", "dp=2", "tp=2"}) expect(train(model, training, {mesh, ""}, {batch}), expected);
  Session evaluated(compile(evaluation(model, training), Mesh::parse("dp=2")), one_thread());
  EXPECT_NEAR(evaluated.run(batch).at("loss").as<float>()[0], expected.loss, 1e-5);
}

TEST_F(ClassAxis, IsAskedForWhereSeveralFit) {
  Training training;
  const auto with = [&](Dims dims) {
    training.label_dims = {{"labels", std::move(dims)}};
    return training;
  };
  const std::string square = text_of({{4, 6, 6, 6}, 1, "", "6, 1, 1"}),
                    wide = text_of({{4, 6, 3, 5}, 1, "", "6, 1, 1"});
  EXPECT_THAT(refusal(square, with({4, 6, 6})), AllOf(HasSubstr("dimension 1"), HasSubstr("cross-entropy:axis=1")));
  EXPECT_EQ(refusal(wide, with({4, 3, 5})), "accepted");
  EXPECT_THAT(refusal(wide, with({4, 5, 3})), AllOf(HasSubstr("[4, 5, 3]"), HasSubstr("one label for each row")));
  EXPECT_THAT(refusal(wide, with({4, 15})), HasSubstr("one label for each row"));
  for (const char* axis : {"0", "4", "-4", "-5"}) {
    training.loss = std::string("cross-entropy:axis=") + axis;
    EXPECT_THAT(refusal(wide, training), HasSubstr("name one from 1 to 3")) << axis;
  }
  for (const char* axis : {"1.5", "nan", "classes", "1e400", "99999999999999999999"}) {
    training.loss = std::string("cross-entropy:axis=") + axis;
    EXPECT_THAT(refusal(wide, training), HasSubstr("axis must be")) << axis;
  }
}

}  // namespace
}  // namespace tessera::test
