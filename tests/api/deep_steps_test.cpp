// What a training step holds for each of its layers, as planned: what the backward pass must find, and no more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "api/small_model.h"
#include "tessera/training.h"

namespace tessera::test {
namespace {

constexpr int64_t kHidden = 256, kWide = 704, kHeads = 8, kClasses = 512, kSequence = 512;

/// A Llama: attention and a gated feed-forward layer, each behind a normalization and beside the residual stream.
std::string llama(int layers) {
  std::string states = fmt::format("float[{}, {}] table", kClasses, kHidden), nodes = "  h0 = Gather (table, ids)\n";
  const auto weight = [&](const std::string& name, int64_t rows, int64_t columns) {
    states += rows == 1 ? fmt::format(", float[{}] {}", columns, name)
                        : fmt::format(", float[{}, {}] {}", rows, columns, name);
  };
  for (int i = 0; i < layers; ++i) {
    for (const char* norm : {"norm_a", "norm_b"}) weight(fmt::format("{}{}", norm, i), 1, kHidden);
    for (const char* name : {"wq", "wk", "wv", "wo"}) weight(fmt::format("{}{}", name, i), kHidden, kHidden);
    for (const char* name : {"gate", "up"}) weight(fmt::format("{}{}", name, i), kHidden, kWide);
    weight(fmt::format("down{}", i), kWide, kHidden);
    nodes += fmt::format(
        "  x{0} = RMSNormalization (h{0}, norm_a{0})\n"
        "  q{0} = MatMul (x{0}, wq{0})\n  k{0} = MatMul (x{0}, wk{0})\n  v{0} = MatMul (x{0}, wv{0})\n"
        "  qr{0} = RotaryEmbedding <num_heads = {2}> (q{0}, cos, sin, places)\n"
        "  kr{0} = RotaryEmbedding <num_heads = {2}> (k{0}, cos, sin, places)\n"
        "  a{0} = Attention <is_causal = 1, q_num_heads = {2}, kv_num_heads = {2}> (qr{0}, kr{0}, v{0})\n"
        "  o{0} = MatMul (a{0}, wo{0})\n  m{0} = Add (h{0}, o{0})\n"
        "  y{0} = RMSNormalization (m{0}, norm_b{0})\n"
        "  g{0} = MatMul (y{0}, gate{0})\n  u{0} = MatMul (y{0}, up{0})\n"
        "  s{0} = Swish (g{0})\n  p{0} = Mul (s{0}, u{0})\n  d{0} = MatMul (p{0}, down{0})\n"
        "  h{1} = Add (m{0}, d{0})\n",
        i, i + 1, kHeads);
  }
  weight("head", kHidden, kClasses);
  const int64_t half = kHidden / kHeads / 2;
  return fmt::format(
      "<ir_version: 11, opset_import: [\"\" : 24]>\n"
      "llama (int64[batch, {0}] ids, int64[batch, {0}] places, float[{0}, {1}] cos, float[{0}, {1}] sin)\n"
      "  => (float[batch, {0}, {2}] logits) <{3}> {{\n{4}  logits = MatMul (h{5}, head)\n}}\n",
      kSequence, half, kClasses, states, nodes, layers);
}

struct Layout {
  const char *name, *mesh, *presets;
  int64_t data = 1, tensor = 1;  ///< ranks along which the batch, and weights, are split
  bool stored_split = false, sequence = false;
};

constexpr Layout kLayouts[] = {
    {"data", "dp=8", "dp", 8},
    {"stored", "dp=8", "fsdp", 8, 1, true},
    {"tensor", "tp=8", "megatron", 1, 8},
    {"sequence", "tp=8", "megatron+sequence", 1, 8, false, true},
    {"all", "dp=8,tp=8", "fsdp+megatron+sequence", 8, 8, true, true},
};

constexpr int64_t kSamples = 4;  // of a rank

/// The peak of a rank, in bytes.
double planned_peak(int layers, const Layout& layout, const char* recompute, DType dtype) {
  const TemporaryFolder folder;
  std::ofstream(folder / "llama.onnxtxt") << llama(layers);
  Training training;
  training.optimizer = "adamw";
  training.clip = 1;
  training.compute = dtype;
  training.sizes = {{"batch", kSamples * layout.data}};
  Plan plan;
  plan.presets = layout.presets;
  plan.recompute = recompute;
  const Program program =
      compile(training_step(Model::load(folder / "llama.onnxtxt"), training).model, Mesh::parse(layout.mesh), plan);
  return static_cast<double>(program.figures(0).peak_bytes);
}

/// Bytes of a layer that a rank must hold: its states, and either activations, at the end of the forward pass, or
/// gradients, which clipping needs at the end of the backward pass.
///
/// Activations, in units of the residual stream: that stream before attention and before the feed-forward layer;
/// without recomputation also both normalizations' results, which a rank reads whole; of products and attention q, k, v
/// and the result, gate and up (as wide as the layer); without recomputation also the activated gate and the product of
/// both. Rotated q and k are then held instead of q and k.
double must_hold(const Layout& layout, const std::string& recompute, DType dtype) {
  const auto tensor = static_cast<double>(layout.tensor);
  const double stream = layout.sequence ? 1 / tensor : 1, wide = static_cast<double>(kWide) / kHidden;
  double units = 2 * stream;
  if (recompute == "selective") units += (4 + 2 * wide) / tensor;
  if (recompute == "none") units += 2 + (4 + 4 * wide) / tensor;
  const double unit = static_cast<double>(kSamples * kSequence * kHidden) * (dtype == DType::bfloat16 ? 2 : 4);
  const double parameters = static_cast<double>(4 * kHidden * kHidden + 3 * kHidden * kWide + 2 * kHidden) / tensor /
                            (layout.stored_split ? static_cast<double>(layout.data) : 1);
  constexpr double kStates = 12, kGradient = 4;  // a parameter and two moments
  return kStates * parameters + std::max(units * unit, kGradient * parameters);
}

class DeepStep : public testing::TestWithParam<std::tuple<Layout, const char*>> {};

TEST_P(DeepStep, holds_for_each_layer_what_it_must) {
  constexpr double kSlack = 1.1;
  constexpr int kFew = 6, kMany = 12;
  const auto& [layout, recompute] = GetParam();
  std::map<DType, double> peaks;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const double few = planned_peak(kFew, layout, recompute, dtype),
                 many = planned_peak(kMany, layout, recompute, dtype);
    EXPECT_LT((many - few) / (kMany - kFew), kSlack * must_hold(layout, recompute, dtype)) << name_of(dtype);
    peaks[dtype] = many;
  }
  EXPECT_LE(peaks[DType::bfloat16], peaks[DType::float32]);
}

INSTANTIATE_TEST_SUITE_P(Plans, DeepStep,
                         testing::Combine(testing::ValuesIn(kLayouts), testing::Values("none", "selective", "full")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param).name, std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tessera::test
