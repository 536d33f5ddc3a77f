// What must hold for training on several ranks to equal training on one; a test for each rule. Wherever a mistake would
// give another plausible number, the test computes that number, too, and makes sure that the data tell both apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "api/trained_on_meshes.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Semantics : public testing::Test, protected SmallModels {
 protected:
  /// Trains on all layouts as on one rank; what one rank gives.
  Trained same_on(const std::vector<Layout>& layouts, const Model& model, const Training& training,
                  const std::vector<Tensors>& batches) {
    const Trained one = train(model, training, {"dp=1", ""}, batches);
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(layout.mesh + " " + layout.presets);
      expect_near(train(model, training, layout, batches), one);
    }
    return one;
  }
};

Training with_sgd(const std::string& rate = "0.1") {
  Training training;
  training.optimizer = "sgd";
  training.learning_rate = rate;
  return training;
}

// A table of tokens and a head over a vocabulary of 17.
constexpr std::string_view kTokens = R"(
tokens (int64[b, s] ids) => (float[b, s, 17] logits) <float[17, 6] embed, float[6, 17] head> {
  h = Gather (embed, ids)
  t = Tanh (h)
  logits = MatMul (t, head)
})";

constexpr int64_t kIgnoredLabel = -100;

/// 4 samples of 6 tokens; sample i has 6, 1, 0 and 2 labels that count.
Tensors padded_batch(int seed) {
  Tensors batch = {{"ids", classes({4, 6}, 17, seed)}, {"labels", classes({4, 6}, 17, seed + 5)}};
  std::vector<int64_t> labels(batch.at("labels").as<int64_t>().begin(), batch.at("labels").as<int64_t>().end());
  const std::vector<size_t> valid = {6, 1, 0, 2};
  for (size_t row = 0; row < 4; ++row)
    for (size_t column = valid[row]; column < 6; ++column) labels[row * 6 + column] = kIgnoredLabel;
  batch.at("labels") = integers({4, 6}, labels);
  return batch;
}

/// Cross-entropy of each label in float64; NaN for those that do not count.
std::vector<double> cross_entropies(const Tensor& logits, const Tensor& labels, double smoothing = 0) {
  const auto x = logits.as<float>();
  const auto wanted = labels.as<int64_t>();
  const size_t width = static_cast<size_t>(logits.dims.back());
  std::vector<double> all;
  for (size_t row = 0; row < wanted.size(); ++row) {
    if (wanted[row] == kIgnoredLabel) {
      all.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    double largest = x[row * width], sum = 0, mean = 0;
    for (size_t i = 0; i < width; ++i) largest = std::max<double>(largest, x[row * width + i]);
    for (size_t i = 0; i < width; ++i) sum += std::exp(x[row * width + i] - largest);
    const auto log_probability = [&](size_t i) { return x[row * width + i] - largest - std::log(sum); };
    for (size_t i = 0; i < width; ++i) mean += log_probability(i) / static_cast<double>(width);
    all.push_back(-(1 - smoothing) * log_probability(static_cast<size_t>(wanted[row])) - smoothing * mean);
  }
  return all;
}

double mean_of_valid(const std::vector<double>& losses, size_t begin, size_t end) {
  double sum = 0, count = 0;
  for (size_t i = begin; i < end; ++i)
    if (!std::isnan(losses[i])) sum += losses[i], ++count;
  return count == 0 ? 0 : sum / count;
}

Tensor logits_of(const Model& model, const Tensors& batch) {
  return Session(compile(model, Mesh()), one_thread()).run({{"ids", batch.at("ids")}}).begin()->second;
}

// 1
TEST_F(Semantics, TokenLossIsASumOverValidTokensOfAllRanksAndMicroBatches) {
  const Model model = this->model(kTokens, 2);
  const Tensors batch = padded_batch(1);
  const std::vector<double> each = cross_entropies(logits_of(model, batch), batch.at("labels"));
  const double right = mean_of_valid(each, 0, each.size());
  // The mean of the means of two ranks, or of two micro-batches of every second sample.
  const double of_ranks = (mean_of_valid(each, 0, 12) + mean_of_valid(each, 12, 24)) / 2;
  ASSERT_GT(std::abs(of_ranks - right), 0.01 * right);
  for (int micro_batches : {1, 2, 4}) {
    SCOPED_TRACE(micro_batches);
    Training training = with_sgd();
    training.micro_batches = micro_batches;
    training.sizes = {{"b", 4}, {"s", 6}};
    const Trained one = same_on(all_layouts(), model, training, {batch, padded_batch(2), padded_batch(3)});
    EXPECT_NEAR(one.losses[0], right, kReordered * right);
    training.micro_batches = 1;
    expect_near(one, train(model, training, {"dp=1", ""}, {batch, padded_batch(2), padded_batch(3)}));
  }
}

TEST_F(Semantics, ABatchWithoutAValidTokenHasNoLossAndNoGradient) {
  const Model model = this->model(kTokens);
  const Tensors batch = {{"ids", classes({4, 6}, 17, 1)}, {"labels", integers({4, 6}, std::vector<int64_t>(24, -100))}};
  std::vector<Layout> layouts = all_layouts();
  layouts.push_back({"dp=1", ""});
  for (int micro_batches : {1, 2})
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(layout.mesh + " " + layout.presets);
      Training training = with_sgd();
      training.micro_batches = micro_batches;
      training.sizes = {{"b", 4}, {"s", 6}};
      const Trained made = train(model, training, layout, {batch});
      EXPECT_EQ(made.losses[0], 0);
      EXPECT_EQ(made.norms[0], 0);
      for (const auto& [name, gradient] : made.first_gradients)
        for (float element : gradient.as<float>()) ASSERT_EQ(element, 0) << name;
    }
}

// Queries and keys with norms of their own, and norms of the residual stream, none of which megatron splits.
std::string block_text(int heads, int width) {
  const std::string h = std::to_string(heads), d = std::to_string(width), hd = std::to_string(heads * width);
  const auto replaced = [&](std::string text) {
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"$HD", hd}, {"$H", h}, {"$D", d}})
      for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
    return text;
  };
  return replaced(R"(
block (int64[b, s] ids) => (float[b, s, 17] logits) <
    float[17, $HD] embed, float[$HD] "norm.1", float[$HD] "bias.1", float[$HD, $HD] wq, float[$HD, $HD] wk,
    float[$HD, $HD] wv, float[$D] "norm.q", float[$D] "norm.k", float[$HD, $HD] wo, float[$HD] bo,
    float[$HD] "norm.2", float[$HD, 31] up, float[31, $HD] down, float[$HD] "bias.down", float[$HD, 17] head,
    int64[4] heads = {0, 0, $H, $D}, int64[3] flat = {0, 0, $HD}, float scale = {0.5}> {
  x = Gather (embed, ids)
  n1 = LayerNormalization <axis = -1> (x, "norm.1", "bias.1")
  q = MatMul (n1, wq)
  k = MatMul (n1, wk)
  v = MatMul (n1, wv)
  q4 = Reshape (q, heads)
  k4 = Reshape (k, heads)
  v4 = Reshape (v, heads)
  qn = LayerNormalization <axis = -1> (q4, "norm.q")
  kn = LayerNormalization <axis = -1> (k4, "norm.k")
  qt = Transpose <perm = [0, 2, 1, 3]> (qn)
  kt = Transpose <perm = [0, 2, 3, 1]> (kn)
  vt = Transpose <perm = [0, 2, 1, 3]> (v4)
  raw = MatMul (qt, kt)
  scores = Mul (raw, scale)
  p = Softmax <axis = -1> (scores)
  c = MatMul (p, vt)
  ct = Transpose <perm = [0, 2, 1, 3]> (c)
  cf = Reshape (ct, flat)
  o = MatMul (cf, wo)
  ob = Add (o, bo)
  r1 = Add (x, ob)
  n2 = LayerNormalization <axis = -1> (r1, "norm.2")
  u = MatMul (n2, up)
  a = Tanh (u)
  w = MatMul (a, down)
  wb = Add (w, "bias.down")
  r2 = Add (r1, wb)
  logits = MatMul (r2, head)
})");
}

Tensors tokens(int64_t rows, int64_t length, int seed) {
  return {{"ids", classes({rows, length}, 17, seed)}, {"labels", classes({rows, length}, 17, seed + 3)}};
}

// 3
TEST_F(Semantics, WeightsThatVaryingPartsUseHaveTheSumOfTheirGradients) {
  const Model model = this->model(block_text(6, 3));
  const Trained one = same_on(all_layouts(), model, with_sgd(), {tokens(4, 6, 1), tokens(4, 6, 2)});
  for (const char* name : {"norm.1", "bias.1", "norm.q", "norm.k", "norm.2", "bo", "bias.down"})
    EXPECT_GT(norm_of(one.first_gradients.at(name)), 1e-4) << name << " could lose a part unseen";
}

// 4
TEST_F(Semantics, ABiasBehindARowParallelProductIsAddedOnce) {
  const Model model = this->model(R"(
pair (float[b, 6] x) => (float[b, 5] y) <float[6, 12] up, float[12, 5] down, float[5] bias> {
  hidden = MatMul (x, up)
  active = Tanh (hidden)
  product = MatMul (active, down)
  y = Add (product, bias)
})");
  const Tensors batch = {{"x", scattered({4, 6}, 1)}, {"target", scattered({4, 5}, 2)}};
  const Tensors forward = {{"x", batch.at("x")}};
  const Tensors one = Session(compile(model, Mesh()), one_thread()).run(forward);
  for (const char* mesh : {"tp=2", "tp=3", "dp=2,tp=2"})
    expect_near(Session(compile(model, Mesh::parse(mesh)), one_thread()).run(forward), one);
  Training training = with_sgd();
  training.loss = "mse";
  training.labels = "target";
  const Trained trained = same_on(all_layouts(), model, training, {batch, batch});
  // The gradient of the bias is 2 (y - target) / count, added over the rows.
  std::vector<float> wanted(5);
  for (size_t i = 0; i < 20; ++i)
    wanted[i % 5] += 2 * (one.at("y").as<float>()[i] - batch.at("target").as<float>()[i]) / 20;
  expect_near(trained.first_gradients.at("bias"), floats({5}, wanted), "bias");
}

int64_t reductions_over(const Program& program, const std::string& axis) {
  int64_t count = 0;
  for (const CollectiveSummary& entry : program.summary().collectives)
    if (entry.kind == "all_reduce" && entry.axes == std::vector<std::string>{axis}) count += entry.count;
  return count;
}

// 5
TEST_F(Semantics, CrossEntropyOverASplitVocabularyIsThatOverAllOfIt) {
  const Model model = this->model(kTokens, 2);
  const Tensors batch = padded_batch(1);
  const std::string annotated = "head=[-,tp]";
  for (const double smoothing : {0.0, 0.1}) {
    Training training = with_sgd();
    training.sizes = {{"b", 4}, {"s", 6}};
    if (smoothing > 0) training.loss = "cross-entropy:label_smoothing=0.1";
    const double right = [&] {
      const std::vector<double> each = cross_entropies(logits_of(model, batch), batch.at("labels"), smoothing);
      return mean_of_valid(each, 0, each.size());
    }();
    const Trained one = train(model, training, {"dp=1", ""}, {batch, padded_batch(2)});
    EXPECT_NEAR(one.losses[0], right, kReordered * right);
    for (const char* mesh : {"tp=2", "tp=3", "tp=4", "tp=20"}) {  // 17 divides by none; of 20 ranks, 3 have no class
      SCOPED_TRACE(mesh);
      Session session(program_of(model, training, {mesh, ""}, {annotated}), one_thread());
      expect_near(run_steps(session, {batch, padded_batch(2)}), one);
    }
  }
}

TEST_F(Semantics, CrossEntropyOverASplitVocabularyTakesThreeReductions) {
  // The logits are what trains, so that the loss and its gradient are all there is.
  const Model model = this->model(R"(
g (float[24, 1] x) => (float[24, 17] logits) <float[1, 17] head> {
  logits = Mul (x, head)
})");
  Training training = with_sgd();
  const Program program = program_of(model, training, {"tp=4", ""}, {"head=[-,tp]"});
  // The largest logit, the sum of exponentials, the label's logit; and one for the norm of the gradient.
  EXPECT_EQ(reductions_over(program, "tp"), 3 + 1) << program.text();
  for (const char* other : {"all_gather", "reduce_scatter", "all_to_all"})
    for (const CollectiveSummary& entry : program.summary().collectives) EXPECT_NE(entry.kind, other);
}

TEST_F(Semantics, GatheredLogitsGiveTheLossOfOneRank) {
  const Model model = this->model(kTokens, 2);
  Training training = with_sgd();
  training.sizes = {{"b", 4}, {"s", 6}};
  const Trained one = train(model, training, {"dp=1", ""}, {padded_batch(1)});
  for (const char* mesh : {"tp=2", "tp=3"}) {
    Session session(program_of(model, training, {mesh, ""}, {"head=[-,tp]", "logits=[-,-,-]"}), one_thread());
    expect_near(run_steps(session, {padded_batch(1)}), one);
  }
}

TEST_F(Semantics, IgnoredLabelsAreNoClassBeforeAnythingIsLookedUpByThem) {
  const Model model = this->model(kTokens, 2);
  Tensors batch = padded_batch(1);
  Training training = with_sgd();
  training.sizes = {{"b", 4}, {"s", 6}};
  const Trained wanted = train(model, training, {"dp=1", ""}, {batch});
  // Another number for "ignored", far beyond the vocabulary.
  std::vector<int64_t> labels(batch.at("labels").as<int64_t>().begin(), batch.at("labels").as<int64_t>().end());
  for (int64_t& label : labels)
    if (label == kIgnoredLabel) label = 1'000'000'007;
  batch.at("labels") = integers({4, 6}, labels);
  training.loss = "cross-entropy:ignore_index=1000000007";
  std::vector<Layout> layouts = all_layouts();
  layouts.push_back({"dp=1", ""});
  for (const Layout& layout : layouts) expect_near(train(model, training, layout, {batch}), wanted);
}

// One table for tokens and for the head.
constexpr std::string_view kTied = R"(
tied (int64[b, s] ids) => (float[b, s, 17] logits) <float[17, 6] embed, float[6, 6] mix> {
  h = Gather (embed, ids)
  m = MatMul (h, mix)
  t = Tanh (m)
  e = Transpose <perm = [1, 0]> (embed)
  logits = MatMul (t, e)
})";
constexpr std::string_view kUntied = R"(
untied (int64[b, s] ids) => (float[b, s, 17] logits) <float[17, 6] embed, float[6, 6] mix, float[17, 6] head> {
  h = Gather (embed, ids)
  m = MatMul (h, mix)
  t = Tanh (m)
  e = Transpose <perm = [1, 0]> (head)
  logits = MatMul (t, e)
})";

// 6
TEST_F(Semantics, TheNormOfGradientsCountsEveryElementOnce) {
  for (const std::string& text : {block_text(6, 3), std::string(kTied)}) {
    const Model model = this->model(text);
    const Trained one = train(model, with_sgd(), {"dp=1", ""}, {tokens(4, 6, 1)});
    double squares = 0;
    for (const auto& [name, gradient] : one.first_gradients) squares += norm_of(gradient) * norm_of(gradient);
    for (const Layout& layout : all_layouts()) {
      SCOPED_TRACE(layout.mesh + " " + layout.presets);
      const Trained made = train(model, with_sgd(), layout, {tokens(4, 6, 1)});
      EXPECT_NEAR(made.norms[0], std::sqrt(squares), kReordered * std::sqrt(squares));
    }
  }
}

TEST_F(Semantics, GradientsAreReducedThenUnscaledThenMeasuredThenClipped) {
  const Model model = this->model(block_text(6, 3));
  const Trained plain = train(model, with_sgd("1"), {"dp=1", ""}, {tokens(4, 6, 1)});
  Training training = with_sgd("1");
  training.clip = plain.norms[0] / 3;
  training.loss_scale = "1024";
  const Tensors before = Session(program_of(model, training, {"dp=1", ""}), one_thread()).states();
  const Trained one = same_on(all_layouts(), model, training, {tokens(4, 6, 1)});
  EXPECT_NEAR(one.norms[0], plain.norms[0], kReordered * plain.norms[0]) << "before clipping, and unscaled";
  const double factor = training.clip / (plain.norms[0] + 1e-6);
  for (const auto& [name, gradient] : plain.first_gradients) {
    const auto old = before.at(name).as<float>(), made = one.states.at(name).as<float>();
    for (size_t i = 0; i < old.size(); ++i)
      ASSERT_NEAR(made[i], old[i] - factor * gradient.as<float>()[i], 1e-5) << name << " " << i;
  }
}

// 7
TEST_F(Semantics, AnOverflowOnOneRankSkipsTheStepOnAll) {
  // One element of one sample overflows float32 when it is scaled: that of one rank only, however the work is split.
  const Model model = this->model(R"(
g (float[6, 6] x) => (float[6, 4] y) <float[6, 6] first, float[6, 4] last> {
  h = MatMul (x, first)
  t = Tanh (h)
  y = MatMul (t, last)
})");
  Training training;
  training.loss = "mse";
  training.labels = "target";
  training.optimizer = "adam";
  training.loss_scale = "dynamic:init=1e18,growth=2,backoff=1e-12,interval=1";
  const Tensors good = {{"x", scattered({6, 6}, 1)}, {"target", scattered({6, 4}, 2)}};
  Tensors bad = good;
  std::vector<float> target(good.at("target").as<float>().begin(), good.at("target").as<float>().end());
  target[5 * 4 + 3] = 1e22F;
  bad.at("target") = floats({6, 4}, target);
  std::vector<Layout> layouts = all_layouts();
  layouts.push_back({"dp=1", ""});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    Session session(program_of(model, training, layout), one_thread());
    Tensors before = session.states();
    session.run(bad);
    Tensors after = session.states();
    EXPECT_FLOAT_EQ(after.at("train.loss_scale").as<float>()[0], 1e6F);
    EXPECT_EQ(after.at("train.step").as<int64_t>()[0], 0);
    after.erase("train.loss_scale"), before.erase("train.loss_scale");
    expect_same(after, before);
    session.run(good);
    after = session.states();
    EXPECT_FLOAT_EQ(after.at("train.loss_scale").as<float>()[0], 2e6F);
    EXPECT_EQ(after.at("train.step").as<int64_t>()[0], 1);
    for (const char* name : {"first", "last"})
      EXPECT_NE(std::memcmp(after.at(name).data, before.at(name).data, after.at(name).bytes), 0) << name;
  }
}

constexpr std::string_view kDropping = R"(
g (float[b, 6] x) => (float[b, 5] y) <float[6, 12] up, float[12, 5] down> {
  ratio = Constant <value_float = 0.4> ()
  on = Constant <value = bool {1}> ()
  hidden = MatMul (x, up)
  active = Tanh (hidden)
  dropped = Dropout (active, ratio, on)
  product = MatMul (dropped, down)
  y = Dropout (product, ratio, on)
})";

std::vector<Tensors> pairs(int64_t rows, int steps) {
  std::vector<Tensors> batches;
  for (int i = 0; i < steps; ++i)
    batches.push_back({{"x", scattered({rows, 6}, i)}, {"target", scattered({rows, 5}, i + 9)}});
  return batches;
}

Training of_pairs(const std::string& optimizer = "sgd") {
  Training training = with_sgd();
  training.optimizer = optimizer;
  training.loss = "mse";
  training.labels = "target";
  return training;
}

// 8
TEST_F(Semantics, DropoutDropsByGlobalIndexOnEveryLayoutAndAfterARestart) {
  const Model model = this->model(kDropping);
  const auto batches = pairs(6, 4);
  Training training = of_pairs("adamw");
  const Trained one = same_on(all_layouts(), model, training, batches);
  training.dropout = "off";
  EXPECT_GT(std::abs(train(model, training, {"dp=1", ""}, batches).losses[0] - one.losses[0]), 1e-3);
  training.dropout = "model";
  training.seed = 1;
  EXPECT_GT(std::abs(train(model, training, {"dp=1", ""}, batches).losses[0] - one.losses[0]), 1e-4);
  training.seed = 0;
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    const Program program = program_of(model, training, layout);
    const std::vector<Tensors> begin(batches.begin(), batches.begin() + 2), end(batches.begin() + 2, batches.end());
    Session whole(program, one_thread()), before(program, one_thread()), after(program, one_thread());
    run_steps(whole, begin), run_steps(before, begin);
    after.set_states(before.states());
    const Trained expected = run_steps(whole, end), actual = run_steps(after, end);
    EXPECT_EQ(actual.losses, expected.losses);
    expect_same(actual.states, expected.states);
  }
}

// 9
TEST_F(Semantics, ATiedTableHasTheSumOfItsGradientsAndIsCountedOnce) {
  const Model tied = this->model(kTied), untied = this->model(kUntied);
  const std::vector<Tensors> batches = {tokens(4, 6, 1)};
  Training training = with_sgd();
  Session free(program_of(untied, training, {"dp=1", ""}), one_thread());
  const Tensors same = Session(program_of(tied, training, {"dp=1", ""}), one_thread()).states();
  free.set_states({{"embed", same.at("embed")}, {"mix", same.at("mix")}, {"head", same.at("embed")}});
  const Trained apart = run_steps(free, batches);
  const auto a = apart.first_gradients.at("embed").as<float>(), b = apart.first_gradients.at("head").as<float>();
  std::vector<float> sum(a.begin(), a.end());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  const Trained one = same_on(all_layouts(), tied, training, batches);
  const Tensor wanted = floats({17, 6}, sum);
  expect_near(one.first_gradients.at("embed"), wanted, "embed");
  const double norm = std::hypot(norm_of(wanted), norm_of(one.first_gradients.at("mix")));
  EXPECT_NEAR(one.norms[0], norm, kReordered * norm);
  EXPECT_GT(std::abs(apart.norms[0] - norm), 0.01 * norm);
}

// 10
TEST_F(Semantics, WhatComputesIn16BitsIsSummedAndKeptIn32) {
  // The gradient of w is the sum of x, three more than its largest element, from which a type on knows even numbers
  // only.
  const Model model = this->model(R"(
g (float[4, 8] x) => (float loss) <float[8] w> {
  y = Mul (x, w)
  loss = ReduceSum <keepdims = 0> (y)
})");
  for (const auto& [type, largest] : {std::pair(DType::bfloat16, 256.F), std::pair(DType::float16, 2048.F)}) {
    SCOPED_TRACE(name_of(type));
    std::vector<float> x;
    for (float row : {largest, 1.F, 1.F, 1.F}) x.insert(x.end(), 8, row);
    Training training = with_sgd("1e-3");
    training.loss = "output";
    training.compute = type;
    training.loss_scale = "1";
    for (const Layout& layout :
         std::vector<Layout>{{"dp=1", ""}, {"dp=2", ""}, {"dp=4", ""}, {"fsdp=2", ""}, {"fsdp=4", ""}}) {
      SCOPED_TRACE(layout.mesh);
      const Trained made = train(model, training, layout, {{{"x", floats({4, 8}, x)}}});
      for (float element : made.first_gradients.at("w").as<float>()) EXPECT_EQ(element, largest + 3);
    }
    // What micro-batches add is exact in 16 bits, and their sum is not.
    const Model one = this->model(R"(
g (float[n, 8] x) => (float loss) <float[8] w> {
  y = Mul (x, w)
  loss = ReduceSum <keepdims = 0> (y)
})");
    training.micro_batches = 4;
    training.sizes = {{"n", 4}};
    for (const char* mesh : {"dp=1", "dp=2", "fsdp=2"}) {
      const Trained made = train(one, training, {mesh, ""}, {{{"x", floats({4, 8}, x)}}});
      for (float element : made.first_gradients.at("w").as<float>()) EXPECT_EQ(element, (largest + 3) / 4) << mesh;
    }
    // Steps far below what 16 bits resolve near 1 add up.
    training.micro_batches = 1;
    training.learning_rate = type == DType::bfloat16 ? "1e-6" : "1e-7";
    Session session(program_of(model, training, {"fsdp=2", ""}), one_thread());
    session.set_states({{"w", floats({8}, std::vector<float>(8, 1))}});
    for (int i = 0; i < 4; ++i) session.run({{"x", floats({4, 8}, x)}});
    const Tensor stepped = session.states().at("w");
    for (float element : stepped.as<float>())
      EXPECT_NEAR(element, 1 - 4 * (largest + 3) * std::stod(training.learning_rate), 1e-6);
    Training narrow;
    narrow.compute = type;
    for (const StateInfo& state : program_of(this->model(block_text(6, 3)), narrow, {"fsdp=2", ""}).states())
      EXPECT_TRUE(state.tensor.dtype == DType::float32 || state.tensor.name == "train.step" ||
                  state.tensor.name == "train.good_steps")
          << state.tensor.name;
  }
}

// 11
TEST_F(Semantics, ParametersBeginAlikeHoweverTheyAreStored) {
  const Model model = this->model(block_text(6, 3));
  Training training;
  training.seed = 7;
  training.init = {{"norm*", "ones"}, {"b*", "uniform:-0.1,0.1"}, {"w*", "xavier"}, {"*", "normal:0.02"}};
  const Tensors one = Session(program_of(model, training, {"dp=1", ""}), one_thread()).states();
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    expect_same(Session(program_of(model, training, layout), one_thread()).states(), one);
  }
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "step.onnx";
  training_step(model, training).write(path);
  Plan plan;
  plan.states = {"*=next.*"};
  const Tensors plain = Session(compile(Model::load(path), Mesh(), plan), one_thread()).states();
  expect_same({{"wq", plain.at("wq")}, {"bo", plain.at("bo")}}, {{"wq", one.at("wq")}, {"bo", one.at("bo")}});
  training.seed = 8;
  const Tensors other = Session(program_of(model, training, {"dp=1", ""}), one_thread()).states();
  EXPECT_NE(std::memcmp(other.at("wq").data, one.at("wq").data, one.at("wq").bytes), 0);
}

// 12
TEST_F(Semantics, MicroBatchesAddUpToTheBatchAndAreReducedOnce) {
  const Model model = this->model(block_text(6, 3));
  Training training;
  training.clip = 1;
  training.sizes = {{"b", 8}, {"s", 6}};
  const std::vector<Tensors> batches = {tokens(8, 6, 1), tokens(8, 6, 2)};
  const Trained whole = train(model, training, {"dp=1", ""}, batches);
  const int64_t reductions = reductions_over(program_of(model, training, {"dp=2", ""}), "dp");
  for (int micro_batches : {2, 4}) {
    training.micro_batches = micro_batches;
    const Trained one = same_on({{"dp=2", ""}, {"fsdp=2", ""}, {"dp=2,tp=2", ""}}, model, training, batches);
    // Adam divides by the root of squares, so that what is nearly zero steps by its rounding.
    expect_near(one.first_gradients, whole.first_gradients);
    EXPECT_NEAR(one.losses[1], whole.losses[1], kReordered * whole.losses[1]);
    EXPECT_EQ(reductions_over(program_of(model, training, {"dp=2", ""}), "dp"), reductions);
  }
}

// 13
TEST_F(Semantics, NothingNeedsToDivide) {
  // 15 samples over 2, 3 and 4 ranks, 9 heads over 2, 31 hidden units, 17 classes.
  const Model model = this->model(block_text(9, 3));
  std::vector<Layout> layouts = all_layouts();
  for (const char* mesh : {"dp=4", "tp=4", "fsdp=4", "dp=2,tp=3", "dp=20"}) layouts.push_back({mesh, ""});
  same_on(layouts, model, with_sgd(), {tokens(15, 5, 1), tokens(15, 5, 2)});
}

TEST_F(Semantics, SamplesThatOnlyFillABatchChangeNothing) {
  const Model model = this->model(block_text(6, 3));
  const Tensors full = tokens(8, 6, 1);
  std::vector<int64_t> labels(full.at("labels").as<int64_t>().begin(), full.at("labels").as<int64_t>().end());
  std::vector<int64_t> ids(full.at("ids").as<int64_t>().begin(), full.at("ids").as<int64_t>().end());
  std::fill(labels.begin() + 5 * 6, labels.end(), kIgnoredLabel);
  const Tensors filled = {{"ids", full.at("ids")}, {"labels", integers({8, 6}, labels)}};
  ids.resize(5 * 6), labels.resize(5 * 6);
  const Tensors small = {{"ids", integers({5, 6}, ids)}, {"labels", integers({5, 6}, labels)}};
  const Trained wanted = train(model, with_sgd(), {"dp=1", ""}, {small});
  for (int micro_batches : {1, 2, 4})
    for (const Layout& layout : all_layouts()) {
      SCOPED_TRACE(layout.mesh + " " + layout.presets);
      Training training = with_sgd();
      training.micro_batches = micro_batches;
      training.sizes = {{"b", 8}, {"s", 6}};
      expect_near(train(model, training, layout, {filled}), wanted);
    }
}

// 14
TEST_F(Semantics, FrozenParametersStayAndLetGradientsThrough) {
  const Model model = this->model(block_text(6, 3));
  const std::vector<Tensors> batches = {tokens(4, 6, 1), tokens(4, 6, 2)};
  const Trained all = train(model, with_sgd(), {"dp=1", ""}, {batches[0]});
  Training training = with_sgd();
  training.freeze = {"wq", "norm.2", "head"};
  const Trained one = same_on(all_layouts(), model, training, batches);
  for (const std::string& name : training.freeze) {
    EXPECT_FALSE(one.first_gradients.contains(name));
    EXPECT_FALSE(one.states.contains(name));
  }
  for (const auto& [name, gradient] : one.first_gradients) expect_near(gradient, all.first_gradients.at(name), name);
  EXPECT_EQ(one.first_gradients.size() + training.freeze.size(), all.first_gradients.size());
}

TEST_F(Semantics, AParameterThatIsUsedTwiceHasTheSumOfItsGradients) {
  const std::string head = "(float[b, 6] x) => (float[b, 6] y) <float[6, 6] w";
  const std::string body = R"(> {
  h = MatMul (x, w)
  t = Tanh (h)
  y = MatMul (t, )";
  const Model shared = this->model("g " + head + body + "w)\n}");
  const Model apart = this->model("g " + head + ", float[6, 6] v" + body + "v)\n}");
  std::vector<Tensors> batches = pairs(4, 1);
  batches[0].at("target") = scattered({4, 6}, 3);
  const Training training = of_pairs();
  const Tensors same = Session(program_of(shared, training, {"dp=1", ""}), one_thread()).states();
  Session free(program_of(apart, training, {"dp=1", ""}), one_thread());
  free.set_states({{"w", same.at("w")}, {"v", same.at("w")}});
  const Trained two = run_steps(free, batches);
  const auto a = two.first_gradients.at("w").as<float>(), b = two.first_gradients.at("v").as<float>();
  std::vector<float> sum(a.begin(), a.end());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  const Trained one = same_on(all_layouts(), shared, training, batches);
  expect_near(one.first_gradients.at("w"), floats({6, 6}, sum), "w");
}

// 15: stages on ranks of their own, with one or several micro-batches on the way.
TEST_F(Semantics, StagesOnOtherRanksChangeNoValue) {
  const Model model = this->model(block_text(6, 3));
  Training training = with_sgd();
  training.sizes = {{"b", 8}, {"s", 6}};
  const std::vector<Tensors> batches = {tokens(8, 6, 1), tokens(8, 6, 2)};
  for (int micro_batches : {1, 4}) {
    SCOPED_TRACE(micro_batches);
    training.micro_batches = micro_batches;
    const Trained one = train(model, training, {"dp=1", ""}, batches);
    for (const std::string mesh : {"pp=2", "pp=2,dp=2"}) {
      SCOPED_TRACE(mesh);
      const TrainingStep step = training_step(model, training);
      std::vector<std::string> outputs = {"loss", "grad_norm"};
      for (const std::string& parameter : step.parameters) outputs.push_back("grad." + parameter);
      Plan plan;
      if (mesh != "pp=2") plan.presets = "dp";
      for (const char* name : {"x*", "n1*", "q*", "k*", "v*", "c*", "o*"})
        plan.places.push_back({std::string(name) + "=pp:0"});
      for (const char* name : {"n2*", "u*", "a*", "w*", "logits*"})
        plan.places.push_back({std::string(name) + "=pp:1"});
      Session session(compile(step.model.with_outputs(outputs), Mesh::parse(mesh), plan), one_thread());
      expect_near(run_steps(session, batches), one);
    }
  }
}

// 16: a sequence that is dealt out head and tail together. Positions and the mask are inputs, so that they can be
// permuted with the tokens.
constexpr std::string_view kPositioned = R"(
positioned (int64[b, s] ids, int64[b, s] positions, bool[b, 1, s, s] seen) => (float[b, s, 17] logits) <
    float[17, 6] embed, float[8, 6] place, float[6, 6] wq, float[6, 6] wk, float[6, 6] wv, float[6, 17] head,
    int64[4] heads = {0, 0, 2, 3}, int64[3] flat = {0, 0, 6}> {
  e = Gather (embed, ids)
  p = Gather (place, positions)
  x = Add (e, p)
  q = MatMul (x, wq)
  k = MatMul (x, wk)
  v = MatMul (x, wv)
  q4 = Reshape (q, heads)
  k4 = Reshape (k, heads)
  v4 = Reshape (v, heads)
  qt = Transpose <perm = [0, 2, 1, 3]> (q4)
  kt = Transpose <perm = [0, 2, 3, 1]> (k4)
  vt = Transpose <perm = [0, 2, 1, 3]> (v4)
  raw = MatMul (qt, kt)
  least = Constant <value_float = -1e9> ()
  scores = Where (seen, raw, least)
  probabilities = Softmax <axis = -1> (scores)
  c = MatMul (probabilities, vt)
  ct = Transpose <perm = [0, 2, 1, 3]> (c)
  cf = Reshape (ct, flat)
  r = Add (x, cf)
  logits = MatMul (r, head)
})";

/// The same samples with their tokens in this order, and the mask by positions.
Tensors in_order(const Tensors& tokens, const std::vector<int64_t>& order, bool with_positions = true) {
  const int64_t rows = tokens.at("ids").dims[0], length = static_cast<int64_t>(order.size());
  std::vector<int64_t> ids, labels, positions;
  std::vector<char> seen;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < length; ++i) {
      const auto from = static_cast<size_t>(row * length + order[static_cast<size_t>(i)]);
      ids.push_back(tokens.at("ids").as<int64_t>()[from]);
      labels.push_back(tokens.at("labels").as<int64_t>()[from]);
      positions.push_back(with_positions ? order[static_cast<size_t>(i)] : i);
      for (int64_t j = 0; j < length; ++j)
        seen.push_back(with_positions ? order[static_cast<size_t>(j)] <= order[static_cast<size_t>(i)] : j <= i);
    }
  Tensor mask = Tensor::of(DType::uint8, {rows, 1, length, length}, std::vector<uint8_t>(seen.begin(), seen.end()));
  mask.dtype = DType::boolean;
  return {{"ids", integers({rows, length}, ids)},
          {"labels", integers({rows, length}, labels)},
          {"positions", integers({rows, length}, positions)},
          {"seen", mask}};
}

TEST_F(Semantics, ASequenceMayBeDealtOutInAnyOrderWithItsPositionsLabelsAndMask) {
  const Model model = this->model(kPositioned);
  const Tensors sample = tokens(4, 8, 1);
  const std::vector<int64_t> as_it_is = {0, 1, 2, 3, 4, 5, 6, 7}, head_and_tail = {0, 1, 6, 7, 2, 3, 4, 5};
  const std::vector<std::string> annotations = {"ids=[-,cp]", "labels=[-,cp]", "positions=[-,cp]", "seen=[-,-,cp,-]"};
  const auto trained = [&](const Tensors& batch, const std::string& mesh, bool split) {
    Session session(program_of(model, with_sgd(), {mesh, ""}, split ? annotations : std::vector<std::string>{}),
                    one_thread());
    return run_steps(session, {batch, batch});
  };
  const Trained one = trained(in_order(sample, as_it_is), "cp=1", false);
  for (const std::string mesh : {"cp=2", "cp=4", "cp=3"}) {
    SCOPED_TRACE(mesh);
    expect_near(trained(in_order(sample, as_it_is), mesh, true), one);
    expect_near(trained(in_order(sample, head_and_tail), mesh, true), one);
  }
  // Tokens that are permuted without their positions and mask are others.
  const Trained wrong = trained(in_order(sample, head_and_tail, false), "cp=2", true);
  EXPECT_GT(std::abs(wrong.losses[0] - one.losses[0]), 1e-3);
}

// The same layout gives the same bits, whatever the ranks' order in time.
TEST_F(Semantics, ALayoutGivesTheSameBitsInEveryRun) {
  const Model model = this->model(block_text(6, 3));
  Training training;
  training.clip = 1;
  const std::vector<Tensors> batches = {tokens(4, 6, 1), tokens(4, 6, 2), tokens(4, 6, 3)};
  for (const Layout& layout : all_layouts()) {
    const Trained first = train(model, training, layout, batches), again = train(model, training, layout, batches);
    EXPECT_EQ(first.losses, again.losses);
    EXPECT_EQ(first.norms, again.norms);
    expect_same(first.states, again.states);
  }
}

}  // namespace
}  // namespace tessera::test
