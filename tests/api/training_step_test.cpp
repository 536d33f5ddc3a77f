// What a training step is made of: which parameters train, its names, and what it does with numbers that are not
// finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/trained_on_meshes.h"
#include "tessera/error.h"
#include "tessera/onnx/import.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

class TrainingSteps : public testing::Test, protected SmallModels {
 protected:
  std::string mistake(std::string_view text, const Training& training) {
    try {
      training_step(model(text), training);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "no error";
  }
  static Training squares() {
    Training training;
    training.loss = "mse";
    training.labels = "target";
    training.optimizer = "sgd";
    training.learning_rate = "0.1";
    return training;
  }
};

TEST_F(TrainingSteps, train_parameters_of_one_element) {
  // A bias of a layer with one output, and a factor that does not train.
  const Model model = this->model(R"(
g (float[b, 4] x) => (float[b, 1] y) <float[4, 1] w, float[1] bias = {0.5}, float[1, 1] scale = {2.0}, float two = {2}> {
  h = MatMul (x, w)
  s = Mul (h, scale)
  d = Mul (s, two)
  y = Add (d, bias)
})");
  const TrainingStep step = training_step(model, squares());
  EXPECT_THAT(step.parameters, UnorderedElementsAre("w", "bias", "scale"));
  const Tensors batch = {{"x", scattered({6, 4}, 1)}, {"target", scattered({6, 1}, 2)}};
  const Trained one = train(model, squares(), {"dp=1", ""}, {batch, batch});
  const Tensors y = Session(compile(model, Mesh()), one_thread()).run({{"x", batch.at("x")}});
  double slope = 0;
  for (size_t i = 0; i < 6; ++i) slope += 2 * (y.at("y").as<float>()[i] - batch.at("target").as<float>()[i]) / 6;
  EXPECT_NEAR(one.first_gradients.at("bias").as<float>()[0], slope, 1e-5 * std::abs(slope));
  EXPECT_NE(one.states.at("bias").as<float>()[0], 0.5F);
  for (const Layout& layout : all_layouts()) expect_near(train(model, squares(), layout, {batch, batch}), one);
}

TEST_F(TrainingSteps, leave_alone_what_operators_read_beforehand) {
  const Model model = this->model(R"(
g (float[2, 4] x) => (float[2, 8] y) <float[4] w, float[1] scale = {2.0}, int64[1] axes = {1}> {
  h = Mul (x, w)
  y = Resize <axes = [1], mode = "nearest"> (h, , scale)
})");
  EXPECT_THAT(training_step(model, squares()).parameters, ElementsAre("w"));
}

TEST_F(TrainingSteps, know_the_parameters_that_do_not_train) {
  Training training = squares();
  training.freeze = {"up"};
  const TrainingStep step = training_step(model(R"(
g (float[b, 8] x) => (float[b, 8] y) <float[8, 32] up, float[32, 8] down> {
  h = MatMul (x, up)
  y = MatMul (h, down)
})"),
                                          training);
  ASSERT_EQ(step.frozen.size(), 1u);
  EXPECT_EQ(step.frozen.at("up").dims, (Dims{8, 32}));
}

TEST_F(TrainingSteps, give_their_names_precedence_over_results_of_the_model) {
  // The model's own results have the names of the step's outputs, states and gradients.
  const std::string body = R"(> {
  loss = MatMul (x, w)
  grad_norm = Tanh (loss)
  "grad.w" = Sigmoid (grad_norm)
  "w.momentum" = Mul ("grad.w", grad_norm)
  "next.w" = Add ("w.momentum", loss)
  "train.step" = Tanh ("next.w")
  learning_rate = Mul ("train.step", loss)
})";
  const Model odd = model("g (float[b, 4] x) => (float[b, 3] learning_rate) <float[4, 3] w" + body);
  std::string plain_body = body;
  int count = 0;
  for (const std::string name :
       {"loss", "grad_norm", "\"grad.w\"", "\"w.momentum\"", "\"next.w\"", "\"train.step\"", "learning_rate"}) {
    const std::string other = "r" + std::to_string(++count);
    for (size_t at; (at = plain_body.find(name)) != std::string::npos;) plain_body.replace(at, name.size(), other);
  }
  const Model plain = model("g (float[b, 4] x) => (float[b, 3] r7) <float[4, 3] w" + plain_body);
  Training training = squares();
  training.optimizer = "sgd:momentum=0.9";
  const std::vector<Tensors> batches = {{{"x", scattered({4, 4}, 1)}, {"target", scattered({4, 3}, 2)}},
                                        {{"x", scattered({4, 4}, 3)}, {"target", scattered({4, 3}, 4)}}};
  const Trained made = train(odd, training, {"dp=2", ""}, batches);
  std::vector<std::string> states;
  for (const auto& [name, state] : made.states) states.push_back(name);
  EXPECT_THAT(states, UnorderedElementsAre("w", "w.momentum", "train.step"));
  expect_near(made, train(plain, training, {"dp=2", ""}, batches));
}

TEST_F(TrainingSteps, refuse_inputs_and_parameters_with_their_names) {
  const std::string body = "{\n  h = MatMul (x, w)\n  y = Add (h, $)\n}";
  const auto with = [&](const std::string& name, const std::string& ports, const std::string& parameters) {
    std::string text = "g (float[b, 4] x" + ports + ") => (float[b, 3] y) <float[4, 3] w" + parameters + "> " + body;
    text.replace(text.find('$'), 1, "\"" + name + "\"");
    Training training = squares();
    training.optimizer = "sgd:momentum=0.9";
    return mistake(text, training);
  };
  EXPECT_THAT(with("loss", ", float[b, 3] \"loss\"", ""), AllOf(HasSubstr("an input 'loss'"), HasSubstr("rename it")));
  for (const std::string name : {"grad_norm", "train.step", "w.momentum", "grad.w", "next.w"})
    EXPECT_THAT(with(name, "", ", float[3] \"" + name + "\""), HasSubstr("a parameter '" + name + "'"));
}

constexpr std::string_view kLogarithm = R"(
g (float[6, 4] x) => (float[6, 3] y) <float[4, 4] first, float[4, 3] w, float[3] bias> {
  s = MatMul (x, first)
  e = Exp (s)
  h = Log (x)
  p = Add (h, e)
  m = MatMul (p, w)
  y = Add (m, bias)
})";

Tensors positive_batch() {
  std::vector<float> x;
  for (int i = 0; i < 24; ++i) x.push_back(static_cast<float>(i % 5 + 1));
  return {{"x", floats({6, 4}, x)}, {"target", scattered({6, 3}, 2)}};
}

Tensors batch_with(float element) {
  Tensors batch = positive_batch();
  batch.at("x").mutable_data();
  std::vector<float> x(batch.at("x").as<float>().begin(), batch.at("x").as<float>().end());
  x[4 * 4 + 1] = element;
  batch.at("x") = floats({6, 4}, x);
  return batch;
}

TEST_F(TrainingSteps, change_no_state_if_the_loss_is_not_finite) {
  for (const std::string optimizer : {"sgd:momentum=0.9", "adamw", "lamb", "lion", "adafactor", "muon"})
    for (const Layout& layout : all_layouts()) {
      SCOPED_TRACE(optimizer + " " + layout.mesh + " " + layout.presets);
      Training training = squares();
      training.optimizer = optimizer;
      training.average = 0.5;
      Session session(program_of(model(kLogarithm), training, layout), one_thread());
      session.run(positive_batch());
      const Tensors before = session.states();
      EXPECT_TRUE(std::isnan(session.run(batch_with(-1)).at("loss").as<float>()[0]));
      expect_same(session.states(), before);
      EXPECT_TRUE(std::isfinite(session.run(positive_batch()).at("loss").as<float>()[0]));
    }
}

TEST_F(TrainingSteps, name_the_tensor_that_was_not_finite_first) {
  std::vector<Layout> layouts = all_layouts();
  layouts.push_back({"dp=1", ""});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    const Program program = program_of(model(kLogarithm), squares(), layout);
    Session session(program, one_thread());
    const auto find = [&](const Tensors& batch) { return first_not_finite(program, session, one_thread(), batch); };
    EXPECT_FALSE(find(positive_batch()).has_value());
    // A logarithm of a negative number.
    std::optional<NotFinite> found = find(batch_with(-1));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->tensor, "h");
    EXPECT_THAT(found->made_by, HasSubstr("Log"));
    EXPECT_EQ(found->nans, 1);
    EXPECT_EQ(found->elements, 24);
    EXPECT_THAT(found->operands, ElementsAre("'x' from -1 to 5"));
    // Exp overflows before that.
    session.set_states({{"first", floats({4, 4}, std::vector<float>(16, 0.5F))}});
    found = find(batch_with(5000));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->tensor, "e");
    EXPECT_GT(found->infinities, 0);
    // Something that was given.
    found = find(batch_with(std::numeric_limits<float>::quiet_NaN()));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->tensor, "x");
    EXPECT_EQ(found->made_by, "the input");
    Tensors states = session.states();
    states.at("bias") = floats({3}, {0, std::numeric_limits<float>::infinity(), 0});
    session.set_states({{"bias", states.at("bias")}});
    found = find(positive_batch());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->tensor, "bias");
    EXPECT_EQ(found->made_by, "the parameter");
  }
}

// A mask's infinities are meant; the NaN behind them is not.
TEST_F(TrainingSteps, pass_over_infinities_of_masks) {
  const Model masked = model(R"(
g (float[4, 5] x, bool[4, 5] seen) => (float[4, 5] y) <float[5, 5] w, float hidden = {-inf}> {
  s = MatMul (x, w)
  r = Sqrt (x)
  m = Where (seen, s, hidden)
  t = Add (m, r)
  y = Softmax <axis = -1> (t)
})");
  const Program program = program_of(masked, squares(), {"dp=2", ""});
  Session session(program, one_thread());
  std::vector<uint8_t> seen(20, 1);
  seen[3] = seen[9] = 0;
  std::vector<float> x(20, 0.5F);
  x[7] = -1;
  const auto found = first_not_finite(
      program, session, one_thread(),
      {{"x", floats({4, 5}, x)}, {"seen", Tensor::of(DType::boolean, {4, 5}, seen)}, {"target", scattered({4, 5}, 2)}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->tensor, "r");
}

TEST_F(TrainingSteps, give_some_states_without_the_others) {
  for (const Layout& layout : all_layouts()) {
    Training training = squares();
    training.optimizer = "adamw";
    Session session(program_of(model(kLogarithm), training, layout), one_thread());
    session.run(positive_batch());
    const Tensors all = session.states(), some = session.states({"w", "bias"});
    expect_same(some, {{"w", all.at("w")}, {"bias", all.at("bias")}});
    EXPECT_THROW(session.states({"w", "absent"}), Error);
  }
}

class WrittenSteps : public testing::TestWithParam<std::string> {};

TEST_P(WrittenSteps, are_in_onnxs_own_operators_as_onnx_spells_them) {
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/models/training/" + GetParam() + "/";
  Training training;
  if (GetParam() == "mlp") training.loss = "mse";
  const TemporaryFolder written;
  const std::filesystem::path path = written / "step.onnx";
  training_step(Model::load(folder + "model.onnx"), training).write(path);
  const OnnxModel step = import_model(path);
  for (const auto& node : step.graph->nodes()) {
    EXPECT_EQ(node->domain, "") << node->label();
    if (!node->is("RotaryEmbedding") || node->input(3)) continue;
    const Value* cache = node->input(1);
    ASSERT_TRUE(cache->producer) << "caches of the file have one row of positions for all samples";
    EXPECT_TRUE(cache->producer->is("Expand"));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WrittenSteps, testing::Values("gpt", "llama", "mlp", "cnn"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::test
