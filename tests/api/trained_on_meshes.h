#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/training.h"

/// Small models that train for a few steps on a mesh, and what comes of it.
namespace tessera::test {

struct Layout {
  std::string mesh, presets;
};

/// Every kind of axis: replicas, split weights, both, stored shards, and activations split between split weights.
inline const std::vector<Layout>& all_layouts() {
  static const std::vector<Layout> all = {{"dp=2", ""},
                                          {"tp=2", ""},
                                          {"tp=3", ""},
                                          {"dp=2,tp=2", ""},
                                          {"fsdp=2", ""},
                                          {"tp=2", "megatron+sequence"},
                                          {"tp=3", "megatron+sequence"}};
  return all;
}

inline Tensor floats(Dims dims, std::vector<float> elements) {
  return Tensor::of(DType::float32, std::move(dims), elements);
}
inline Tensor integers(Dims dims, std::vector<int64_t> elements) {
  return Tensor::of(DType::int64, std::move(dims), elements);
}
/// Numbers from -1 to 1 that look like chance, other ones for each `seed`.
inline Tensor scattered(Dims dims, int seed, float scale = 1) {
  std::vector<float> elements(static_cast<size_t>(count_of(dims)));
  for (size_t i = 0; i < elements.size(); ++i)
    elements[i] = scale * (static_cast<float>((i * 7919 + static_cast<size_t>(seed) * 104729) % 2003) / 1001 - 1);
  return floats(std::move(dims), std::move(elements));
}
inline Tensor classes(Dims dims, int64_t count, int seed) {
  std::vector<int64_t> elements(static_cast<size_t>(count_of(dims)));
  for (size_t i = 0; i < elements.size(); ++i)
    elements[i] = static_cast<int64_t>(i * 31 + static_cast<size_t>(seed) * 17 + i * i % 5) % count;
  return integers(std::move(dims), std::move(elements));
}

/// A model of a text (opset 22) whose parameters are scattered numbers, but for those that the text gives.
class SmallModels {
 public:
  Model model(std::string_view text, float scale = 0.5F) {
    OnnxModel made = parse_text(std::string("<ir_version: 10, opset_import: [\"\" : 22]>\n") + std::string(text));
    int seed = 0;
    for (Value* state : made.graph->values_of(ValueKind::state))
      state->data = scattered(state->data.dims, ++seed, scale);
    const std::filesystem::path path = folder_ / ("model" + std::to_string(++count_) + ".onnx").c_str();
    export_model(made, path);
    return Model::load(path);
  }

 private:
  TemporaryFolder folder_;
  int count_ = 0;
};

/// What a run of some steps gives.
struct Trained {
  std::vector<double> losses, norms;
  Tensors first_gradients;  ///< after clipping nothing: as the backward pass leaves them
  Tensors states;           ///< after the last step
};

/// A training step on a mesh, whose gradients are outputs, too.
inline Program program_of(const Model& model, const Training& training, const Layout& layout,
                          const std::vector<std::string>& annotations = {}) {
  const TrainingStep step = training_step(model, training);
  std::vector<std::string> outputs;
  for (const TensorInfo& output : step.model.outputs()) outputs.push_back(output.name);
  for (const std::string& parameter : step.parameters) outputs.push_back("grad." + parameter);
  Plan plan;
  plan.presets = layout.presets;
  for (const std::string& text : annotations) plan.annotations.push_back({text});
  return compile(step.model.with_outputs(outputs), Mesh::parse(layout.mesh), plan);
}

/// Goes on with a session of program_of for one step for each batch.
inline Trained run_steps(Session& session, const std::vector<Tensors>& batches) {
  Trained made;
  for (const Tensors& batch : batches) {
    const Tensors results = session.run(batch);
    made.losses.push_back(results.at("loss").as<float>()[0]);
    made.norms.push_back(results.at("grad_norm").as<float>()[0]);
    if (made.losses.size() > 1) continue;
    for (const auto& [name, tensor] : results)
      if (name.starts_with("grad.")) made.first_gradients.emplace(name.substr(5), tensor);
  }
  made.states = session.states();
  return made;
}

inline Trained train(const Model& model, const Training& training, const Layout& layout,
                     const std::vector<Tensors>& batches) {
  Session session(program_of(model, training, layout), one_thread());
  return run_steps(session, batches);
}

/// The largest norm of a difference that the rounding of reordered sums may leave, of the larger norm of two tensors.
inline constexpr double kReordered = 1e-5;

inline void expect_near(const Tensor& made, const Tensor& wanted, const std::string& name) {
  ASSERT_EQ(made.dims, wanted.dims) << name;
  ASSERT_EQ(made.dtype, wanted.dtype) << name;
  if (made.dtype != DType::float32) {
    EXPECT_EQ(std::memcmp(made.data, wanted.data, made.bytes), 0) << name;
    return;
  }
  double difference = 0, size = 0;
  const auto a = made.as<float>(), b = wanted.as<float>();
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  EXPECT_LE(std::sqrt(difference), kReordered * std::sqrt(size) + 1e-9) << name;
}

inline void expect_near(const Tensors& made, const Tensors& wanted) {
  ASSERT_EQ(made.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(made.contains(name)) << name;
    expect_near(made.at(name), tensor, name);
  }
}

/// The same training, but for rounding.
inline void expect_near(const Trained& made, const Trained& wanted) {
  ASSERT_EQ(made.losses.size(), wanted.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(made.losses[i], wanted.losses[i], kReordered * std::abs(wanted.losses[i])) << "step " << i;
    EXPECT_NEAR(made.norms[i], wanted.norms[i], kReordered * wanted.norms[i]) << "step " << i;
  }
  expect_near(made.first_gradients, wanted.first_gradients);
  expect_near(made.states, wanted.states);
}

inline double norm_of(const Tensor& tensor) {
  double squares = 0;
  for (float element : tensor.as<float>()) squares += static_cast<double>(element) * element;
  return std::sqrt(squares);
}

}  // namespace tessera::test
