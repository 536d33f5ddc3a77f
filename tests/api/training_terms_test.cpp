// Losses that are sums: each term has its own tensor, weight and normalizer, on every mesh and with micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/trained_on_meshes.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;

// Tokens through four experts that a router weighs: logits, the balance of the router, and its logits.
constexpr std::string_view kExperts = R"(
experts (int64[b, s] ids) => (float[b, s, 17] logits, float balance, float[b, s, 4] routing) <
    float[17, 6] embed, float[6, 4] router, float[6, 24] up, float[24, 17] down,
    int64[2] tokens = {0, 1}, float[4, 24] spread> {
  x = Gather (embed, ids)
  routing = MatMul (x, router)
  p = Softmax <axis = -1> (routing)
  share = ReduceMean <keepdims = 0> (p, tokens)
  squares = Mul (share, share)
  balance = ReduceSum <keepdims = 0> (squares)
  u = MatMul (x, up)
  t = Tanh (u)
  w = MatMul (p, spread)
  m = Mul (t, w)
  logits = MatMul (m, down)
})";

constexpr int64_t kPadding = -100;

class Terms : public testing::Test, protected SmallModels {
 protected:
  static Tensors batch(int seed) {
    Tensors made = {{"ids", classes({4, 6}, 17, seed)}, {"labels", classes({4, 6}, 17, seed + 5)}};
    std::vector<int64_t> labels(made.at("labels").as<int64_t>().begin(), made.at("labels").as<int64_t>().end());
    const std::vector<size_t> valid = {6, 1, 0, 2};
    for (size_t row = 0; row < 4; ++row)
      for (size_t column = valid[row]; column < 6; ++column) labels[row * 6 + column] = kPadding;
    made.at("labels") = integers({4, 6}, labels);
    return made;
  }

  static Training with_loss(const std::string& loss) {
    Training training;
    training.loss = loss;
    training.optimizer = "sgd";
    training.learning_rate = "0.1";
    return training;
  }

  std::string error_of(const std::string& loss) {
    try {
      training_step(model(kExperts), with_loss(loss));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

/// The mean of (log Σ eˣ)² over rows whose label counts; over all rows without labels.
double mean_z(const Tensor& logits, const Tensor* labels) {
  const auto x = logits.as<float>();
  const auto width = static_cast<size_t>(logits.dims.back());
  double sum = 0, count = 0;
  for (size_t row = 0; row * width < x.size(); ++row) {
    if (labels && labels->as<int64_t>()[row] == kPadding) continue;
    double exponentials = 0;
    for (size_t i = 0; i < width; ++i) exponentials += std::exp(static_cast<double>(x[row * width + i]));
    sum += std::log(exponentials) * std::log(exponentials), ++count;
  }
  return sum / count;
}

// 2
TEST_F(Terms, EachHasItsOwnNormalizerOverRanksAndMicroBatches) {
  const Model model = this->model(kExperts, 1);
  const Tensors first = batch(1);
  const Tensors forward = Session(compile(model, Mesh()), one_thread()).run({{"ids", first.at("ids")}});
  const double z = mean_z(forward.at("logits"), &first.at("labels")), all = mean_z(forward.at("logits"), nullptr),
               routed = mean_z(forward.at("routing"), nullptr);
  ASSERT_GT(std::abs(z - all), 0.01 * z) << "padding would not be seen";
  const std::string spec = "cross-entropy+0.5*z-loss+0.25*z-loss:routing,labels=none+2*mean:routing";
  const double plain = train(model, with_loss("cross-entropy"), {"dp=1", ""}, {first}).losses[0];
  Training training = with_loss(spec);
  const Trained one = train(model, training, {"dp=1", ""}, {first, batch(2)});
  const Tensors outputs = Session(program_of(model, training, {"dp=1", ""}), one_thread()).run(first);
  const auto output = [](const Tensors& from, const std::string& name) { return from.at(name).as<float>()[0]; };
  double mean = 0;
  for (float element : forward.at("routing").as<float>()) mean += element / (4 * 6 * 4);
  EXPECT_NEAR(output(outputs, "loss.cross-entropy"), plain, kReordered * plain);
  EXPECT_NEAR(output(outputs, "loss.z-loss"), z, kReordered * z);
  EXPECT_NEAR(output(outputs, "loss.z-loss.routing"), routed, kReordered * routed);
  EXPECT_NEAR(output(outputs, "loss.mean.routing"), mean, kReordered);
  EXPECT_NEAR(one.losses[0], plain + 0.5 * z + 0.25 * routed + 2 * mean, kReordered * one.losses[0]);
  for (int micro_batches : {1, 2, 4}) {
    training.micro_batches = micro_batches;
    training.sizes = {{"b", 4}, {"s", 6}};
    for (const Layout& layout : all_layouts()) {
      SCOPED_TRACE(layout.mesh + " " + layout.presets + ", micro-batches " + std::to_string(micro_batches));
      expect_near(train(model, training, layout, {first, batch(2)}), one);
      const Tensors made = Session(program_of(model, training, layout), one_thread()).run(first);
      for (const char* term : {"loss.cross-entropy", "loss.z-loss", "loss.z-loss.routing", "loss.mean.routing"})
        EXPECT_NEAR(output(made, term), output(outputs, term), kReordered * std::abs(output(outputs, term)) + 1e-6)
            << term;
    }
  }
}

// A scalar that the model makes of the whole batch is the same on every mesh.
TEST_F(Terms, ABalanceOfExpertsIsThatOfTheWholeBatch) {
  const Model model = this->model(kExperts, 1);
  const Tensors first = batch(1);
  const Tensors forward = Session(compile(model, Mesh()), one_thread()).run({{"ids", first.at("ids")}});
  const double balance = forward.at("balance").as<float>()[0];
  const Training training = with_loss("cross-entropy+3*output:balance");
  const Trained one = train(model, training, {"dp=1", ""}, {first, batch(2)});
  const double plain = train(model, with_loss("cross-entropy"), {"dp=1", ""}, {first}).losses[0];
  EXPECT_NEAR(one.losses[0], plain + 3 * balance, kReordered * one.losses[0]);
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    expect_near(train(model, training, layout, {first, batch(2)}), one);
  }
  // The gradient is the sum of the terms' gradients.
  const Trained a = train(model, with_loss("cross-entropy"), {"dp=1", ""}, {first}),
                b = train(model, with_loss("output:balance"), {"dp=1", ""}, {{{"ids", first.at("ids")}}});
  const auto sum = one.first_gradients.at("router").as<float>();
  for (size_t i = 0; i < sum.size(); ++i)
    EXPECT_NEAR(sum[i],
                a.first_gradients.at("router").as<float>()[i] + 3 * b.first_gradients.at("router").as<float>()[i],
                1e-5);
}

TEST_F(Terms, CompareWithLabelsOfTheirOwn) {
  const Model model = this->model(R"(
two (float[b, 6] x) => (float[b, 5] y, float[b, 4] z) <float[6, 8] up, float[8, 5] first, float[8, 4] second> {
  h = MatMul (x, up)
  t = Tanh (h)
  y = MatMul (t, first)
  z = MatMul (t, second)
})");
  Training training = with_loss("mse:y,labels=near+0.5*mse:z,labels=far");
  const std::vector<Tensors> batches = {
      {{"x", scattered({4, 6}, 1)}, {"near", scattered({4, 5}, 2)}, {"far", scattered({4, 4}, 3)}}};
  const Trained one = train(model, training, {"dp=1", ""}, batches);
  training.sizes = {{"b", 4}};
  for (int micro_batches : {1, 2})
    for (const Layout& layout : all_layouts()) {
      training.micro_batches = micro_batches;
      expect_near(train(model, training, layout, batches), one);
    }
}

TEST_F(Terms, OfOneTensorHaveLabelsOfTheirOwn) {
  const Model model = this->model("g (float[b, 6] x) => (float[b, 5] y) <float[6, 5] w> {\n  y = MatMul (x, w)\n}");
  Training training = with_loss("mse:y,labels=near + 3*mse:y,labels=far");
  training.optimizer = "sgd";
  const Tensor near = scattered({4, 5}, 2), far = scattered({4, 5}, 3);
  Session session(program_of(model, training, {"dp=2", ""}), one_thread());
  const Tensors made = session.run({{"x", scattered({4, 6}, 1)}, {"near", near}, {"far", far}});
  EXPECT_FLOAT_EQ(made.at("loss").as<float>()[0],
                  made.at("loss.mse.y.near").as<float>()[0] + 3 * made.at("loss.mse.y.far").as<float>()[0]);
}

TEST_F(Terms, DoNotShareLabelsThatFitOneOfThemOnly) {
  const Model model = this->model(R"(
g (float[b, 6] x) => (float[b, 5] y, float[b, 1] z, float[b, 2, 5] s, float[b, 2] v) <
    float[6, 5] a, float[6, 1] c, float[6, 10] d, float[6, 2] e> {
  y = MatMul (x, a)
  z = MatMul (x, c)
  wide = MatMul (x, d)
  shape = Constant <value = int64[3] {0, 2, 5}> ()
  s = Reshape (wide, shape)
  v = MatMul (x, e)
})");
  const auto refusal = [&](const std::string& loss) {
    try {
      training_step(model, with_loss(loss));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("mse:y+mse:z"), AllOf(HasSubstr("element with element"), HasSubstr("labels=INPUT")));
  EXPECT_THAT(refusal("bce-with-logits:z+mse:y"), HasSubstr("element with element"));
  EXPECT_THAT(refusal("cross-entropy:s+mse:v"), AllOf(HasSubstr("int64"), HasSubstr("labels=INPUT")));
  EXPECT_EQ(refusal("cross-entropy:s+mse:v,labels=values"), "accepted");
}

TEST_F(Terms, OfAnEvaluationAddUpOverBatches) {
  const Model model = this->model(kExperts, 1);
  const Training training = with_loss("cross-entropy+0.5*z-loss+2*output:balance");
  Session evaluation(compile(tessera::evaluation(model, training), Mesh()), one_thread());
  const Tensors made = evaluation.run(batch(1));
  EXPECT_EQ(made.at("counted.cross-entropy").as<float>()[0], 9);
  EXPECT_EQ(made.at("counted.z-loss").as<float>()[0], 9);
  EXPECT_EQ(made.at("counted.output.balance").as<float>()[0], 1);
  double sum = 0;
  for (const LossTerm& term : loss_terms(training.loss)) sum += term.weight * made.at(term.loss).as<float>()[0];
  EXPECT_NEAR(made.at("loss").as<float>()[0], sum, 1e-5);
}

TEST_F(Terms, ThatNobodyKnowsAreRefused) {
  EXPECT_THAT(error_of("cross-entropy+magic"), HasSubstr("there is no loss 'magic'"));
  EXPECT_THAT(error_of("cross-entropy+"), HasSubstr("there is no loss ''"));
  EXPECT_THAT(error_of("x*cross-entropy"), HasSubstr("'x' in 'x*cross-entropy' is not a weight"));
  EXPECT_THAT(error_of("z-loss+z-loss"), HasSubstr("two terms z-loss"));
  EXPECT_THAT(error_of("cross-entropy+output:balanc"), HasSubstr("makes a tensor 'balanc'"));
  EXPECT_THAT(error_of("output:routing"), HasSubstr("it must be one number"));
  EXPECT_THAT(error_of("cross-entropy:label_smoothing=x"), HasSubstr("'label_smoothing=x'"));
  EXPECT_THAT(error_of("mse:labels=none"), HasSubstr("compares the output with labels"));
  EXPECT_EQ(error_of("1e+0*cross-entropy+1e-3*z-loss"), "");
  EXPECT_EQ(error_of("cross-entropy + 0.1*z-loss"), "");
}

// Numbers without a dimension train if they are named.
TEST_F(Terms, NumbersWithoutADimensionTrainByName) {
  const Model model = this->model(R"(
g (float[b, 6] x) => (float[b, 5] y) <float[6, 5] w, float temperature = {2.0}, float half = {0.5}> {
  c = Constant <value_float = 0.25> ()
  product = MatMul (x, w)
  scaled = Mul (product, temperature)
  part = Mul (scaled, half)
  y = Add (part, c)
})");
  Training training = with_loss("mse");
  training.labels = "target";
  const std::vector<Tensors> batches = {{{"x", scattered({4, 6}, 1)}, {"target", scattered({4, 5}, 2)}},
                                        {{"x", scattered({4, 6}, 3)}, {"target", scattered({4, 5}, 4)}}};
  EXPECT_FALSE(train(model, training, {"dp=1", ""}, batches).first_gradients.contains("temperature"));
  training.train = {"temp*", "c"};
  const Trained one = train(model, training, {"dp=1", ""}, batches);
  ASSERT_TRUE(one.first_gradients.contains("temperature"));
  ASSERT_TRUE(one.first_gradients.contains("c"));
  EXPECT_FALSE(one.first_gradients.contains("half"));
  EXPECT_NE(one.states.at("temperature").as<float>()[0], 2);
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    expect_near(train(model, training, layout, batches), one);
  }
  training.train = {"cold*"};
  EXPECT_THROW(training_step(model, training), Error);
}

}  // namespace
}  // namespace tessera::test
