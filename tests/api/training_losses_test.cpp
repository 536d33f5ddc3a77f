// Losses and their gradients against their definitions, computed here in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "api/trained_on_meshes.h"

namespace tessera::test {
namespace {

/// A loss of one element: its value and slope in x.
struct Definition {
  std::function<double(double x, double z)> value, slope;
};

class Losses : public testing::Test, protected SmallModels {
 protected:
  /// Trains x itself, through a product with ones, and compares the loss and the gradient of x.
  void expect(const std::string& loss, const std::vector<float>& x, const std::vector<float>& z,
              const Definition& definition) {
    const Model model = this->model(R"(
g (float[1, 12] one) => (float[1, 12] y) <float[1, 12] x> {
  y = Mul (one, x)
})");
    Training training;
    training.loss = loss;
    training.labels = "z";
    training.optimizer = "sgd";
    double mean = 0;
    std::vector<float> slopes;
    for (size_t i = 0; i < 12; ++i) {
      mean += definition.value(x[i], z[i]) / 12;
      slopes.push_back(static_cast<float>(definition.slope(x[i], z[i]) / 12));
    }
    std::vector<Layout> layouts = all_layouts();
    layouts.push_back({"dp=1", ""});
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(loss + " on " + layout.mesh);
      Session session(program_of(model, training, layout), one_thread());
      session.set_states({{"x", floats({1, 12}, x)}});
      const Trained made =
          run_steps(session, {{{"one", floats({1, 12}, std::vector<float>(12, 1))}, {"z", floats({1, 12}, z)}}});
      EXPECT_NEAR(made.losses[0], mean, kReordered * std::abs(mean));
      expect_near(made.first_gradients.at("x"), floats({1, 12}, slopes), "x");
    }
  }
};

const std::vector<float> kTargets = {0, 1, 0.3F, 1, 0, 0, 1, 1, 0.5F, 0.9F, 0, 1};

TEST_F(Losses, MeanSquaredErrorIsTheMeanOfSquares) {
  expect("mse", {-2, -1, 0, 1, 2, 3, 4, 5, 6, 0.5F, -0.5F, 0.25F}, kTargets,
         {[](double x, double z) { return (x - z) * (x - z); }, [](double x, double z) { return 2 * (x - z); }});
}

TEST_F(Losses, BinaryCrossEntropyOfProbabilities) {
  expect("bce", {0.1F, 0.9F, 0.3F, 0.5F, 0.25F, 0.01F, 0.99F, 0.75F, 0.5F, 0.2F, 0.6F, 0.001F}, kTargets,
         {[](double p, double z) { return -z * std::log(p) - (1 - z) * std::log(1 - p); },
          [](double p, double z) { return (p - z) / (p * (1 - p)); }});
}

TEST_F(Losses, BinaryCrossEntropyBoundsTheLogarithmOfNoProbability) {
  const auto log = [](double p) { return p > 0 ? std::log(p) : -100; };
  const auto slope = [](double p) { return p > 0 ? 1 / p : 0; };
  expect("bce", {0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0.5F, 0.5F}, kTargets,
         {[=](double p, double z) { return -z * log(p) - (1 - z) * log(1 - p); },
          [=](double p, double z) { return -z * slope(p) + (1 - z) * slope(1 - p); }});
}

TEST_F(Losses, BinaryCrossEntropyOfLogitsIsFiniteForAll) {
  expect("bce-with-logits", {-300, 300, 0, 90, -90, 2, -2, 1e-3F, 0.7F, -0.7F, 5, -5}, kTargets,
         {[](double x, double z) { return std::max(x, 0.0) - x * z + std::log1p(std::exp(-std::abs(x))); },
          [](double x, double z) { return 1 / (1 + std::exp(-x)) - z; }});
}

}  // namespace
}  // namespace tessera::test
