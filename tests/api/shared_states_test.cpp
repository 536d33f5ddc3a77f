// A training step and its evaluation over the same states: on every mesh and with every preset they store these alike,
// whatever each would choose alone; evaluations give what one rank gives, and leave the states as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstring>

#include "api/trained_on_meshes.h"
#include "sample.h"
#include "tessera/error.h"
#include "tessera/io/npz.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 2;

/// A model of tests/models/training, with the data of its first steps.
struct Learner {
  Model model;
  Training training;
  std::vector<Tensors> batches;
};

Learner learner(const std::string& name) {
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/models/training/" + name;
  Learner made{Model::load(folder + "/model.onnx"), {}, std::vector<Tensors>(kSteps + 1)};
  made.training.optimizer = name == "mlp" ? "sgd" : "adamw";
  made.training.learning_rate = "1e-3";
  if (name == "mlp") made.training.loss = "mse";
  made.training.labels = name == "mlp" ? "target" : name == "cnn" ? "label" : "labels";
  for (const auto& [array, all] : read_npz(folder + "/data.npz"))
    for (size_t i = 0; i < made.batches.size(); ++i) {
      Tensor one = all;
      one.dims.erase(one.dims.begin());
      one.bytes = all.bytes / static_cast<size_t>(all.dims.front());
      one.data = all.data + i * one.bytes;
      made.batches[i].emplace(array, one);
    }
  for (const TensorInfo& input : made.model.inputs())
    for (size_t d = 0; d < input.shape.size(); ++d)
      if (!std::isdigit(static_cast<unsigned char>(input.shape[d].front())))
        made.training.sizes.emplace(input.shape[d], made.batches[0].at(input.name).dims[d]);
  return made;
}

/// What a run shows: the loss of the evaluation after each step that has one, and the states at the end.
struct Evaluated {
  std::vector<float> losses;
  Tensors states;
};

struct Programs {
  Program step, evaluation;
};

Programs compiled(const Learner& learner, const Layout& layout) {
  Plan plan;
  plan.presets = layout.presets;
  const Mesh mesh = Mesh::parse(layout.mesh);
  const Program step = compile(training_step(learner.model, learner.training).model, mesh, plan);
  CompileOptions options;
  options.sharing = step;
  return {step, compile(evaluation(learner.model, learner.training), mesh, plan, options)};
}

Evaluated run(const Learner& learner, const Programs& programs, bool each) {
  Session training(programs.step, one_thread());
  SessionOptions shared = one_thread();
  shared.share_states = &training;
  Session evaluating(programs.evaluation, shared);
  Evaluated made;
  const auto evaluate = [&] {
    made.losses.push_back(evaluating.run(learner.batches[kSteps]).at("loss").as<float>()[0]);
  };
  for (int step = 0; step < kSteps; ++step) {
    training.run(learner.batches[step]);
    if (each) evaluate();
  }
  const Tensors before = training.states();
  if (!each) evaluate();
  made.states = training.states();
  expect_same(made.states, before);  // as without any evaluation
  return made;
}

/// Each way to divide the data with each way to divide the tensors. Twelve ranks are more than a test needs.
std::vector<Layout> product() {
  const std::vector<Layout> data = {
      {"", ""}, {"dp=2", "dp"}, {"dp=2", "zero1"}, {"fsdp=2", "fsdp"}, {"dp=2,fsdp=2", "hsdp"}};
  const std::vector<Layout> tensors = {{"", ""},
                                       {"tp=2", "megatron"},
                                       {"tp=3", "megatron"},
                                       {"tp=2", "megatron+sequence"},
                                       {"tp=2", "megatron+features"}};
  std::vector<Layout> all = {{"dp=2,tp=2", "2d"}, {"dp=2,tp=2", "none"}};
  for (const Layout& outer : data)
    for (const Layout& inner : tensors) {
      if (outer.presets == "hsdp" && inner.mesh == "tp=3") continue;
      const bool both = !outer.mesh.empty() && !inner.mesh.empty();
      all.push_back({outer.mesh + (both ? "," : "") + inner.mesh, outer.presets + (both ? "+" : "") + inner.presets});
    }
  return all;
}

const std::vector<std::string> kLearners = {"mlp", "cnn", "gpt"};

class SharedStates : public testing::TestWithParam<size_t> {};

TEST_P(SharedStates, has_one_layout_under_all_presets) {
  const Learner learner = test::learner(kLearners[GetParam()]);
  const Evaluated alone = run(learner, compiled(learner, {"", "none"}), true);
  size_t products = GetParam();  // learners take turns at products of presets
  for (const Layout& layout : product()) {
    const bool is_product = layout.presets.find('+') != std::string::npos;
    if (is_product && !test::tries_all() && products++ % kLearners.size() != 0) continue;
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    const Programs programs = compiled(learner, layout);
    std::map<std::string, std::string> stored;
    for (const StateInfo& state : programs.step.states()) stored[state.tensor.name] = state.storage;
    for (const StateInfo& state : programs.evaluation.states())
      EXPECT_TRUE(!state.changes || state.storage == stored.at(state.tensor.name)) << state.tensor.name;
    const Evaluated each = run(learner, programs, true);
    ASSERT_EQ(each.losses.size(), alone.losses.size());
    for (size_t i = 0; i < alone.losses.size(); ++i)
      EXPECT_NEAR(each.losses[i], alone.losses[i], 1e-4 * std::abs(alone.losses[i])) << "after step " << i + 1;
    if (is_product) continue;  // else it takes too long
    const Evaluated last = run(learner, programs, false);
    EXPECT_EQ(last.losses.back(), each.losses.back());
    expect_same(last.states, each.states);
  }
}

TEST(SharedStatesOf, programs_for_other_meshes_or_parameters_are_refused) {
  Learner learner = test::learner("mlp");
  const auto refusal = [&](const std::string& mesh) -> std::string {
    CompileOptions options;
    options.sharing = compiled(learner, {"dp=2", ""}).step;
    Training other = learner.training;
    other.freeze = {training_step(learner.model, learner.training).parameters.front()};
    try {
      compile(evaluation(learner.model, mesh == "dp=2" ? other : learner.training), Mesh::parse(mesh), {}, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("tp=2"),
              HasSubstr("states are shared with a program for the mesh dp=2, but this one is for tp=2"));
  EXPECT_THAT(refusal("dp=2"), HasSubstr("changes in one of the programs that share it, but not in the other"));
}

INSTANTIATE_TEST_SUITE_P(Models, SharedStates, testing::Range(size_t{0}, kLearners.size()),
                         [](const auto& info) { return kLearners[info.param]; });

}  // namespace
}  // namespace tessera::test
