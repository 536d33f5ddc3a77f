// Whole training steps, as PyTorch's autograd and exporter wrote them: forward, loss, backward, clipping and update in
// one graph. Twenty steps on any mesh give PyTorch's losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "api/same_bits.h"
#include "sample.h"
#include "tessera/api/impl.h"
#include "tessera/io/npz.h"
#include "tessera/runtime/rank_plan.h"

namespace tessera {
namespace {

const std::string kStepsFolder = std::string(TESSERA_TEST_DATA) + "/models/steps/";

Tensor slice_of(const Tensor& all, int64_t step) {
  Tensor slice = all;
  slice.dims.erase(slice.dims.begin());
  slice.bytes = all.bytes / static_cast<size_t>(all.dims.front());
  slice.data = all.data + static_cast<size_t>(step) * slice.bytes;
  return slice;
}

/// A model's step on a mesh, with or without storage split along the states' first dimensions.
struct StepCase {
  std::string model, mesh, presets, store;

  Program compiled(const std::string& recompute = "none") const {
    Plan plan;
    plan.recompute = recompute;
    plan.presets = presets;
    plan.states = {"*=next.*"};
    if (!store.empty()) plan.storage = {{"*=[" + store + ",...]"}};
    return compile(Model::load(kStepsFolder + model + "/model.onnx"), Mesh::parse(mesh), plan);
  }
};

const std::vector<StepCase>& step_cases(const std::string& model) {
  static std::map<std::string, std::vector<StepCase>> known;
  std::vector<StepCase>& cases = known[model];
  if (!cases.empty()) return cases;
  for (const auto& [mesh, presets, axis] :
       std::vector<std::array<std::string, 3>>{{"tp=1", "", "tp"},
                                               {"tp=2", "", "tp"},
                                               {"tp=3", "", "tp"},
                                               {"dp=2", "", "dp"},
                                               {"dp=3", "", "dp"},
                                               {"dp=2,tp=2", "", "dp"},
                                               {"tp=2", "megatron+sequence", "tp"},
                                               {"tp=3", "megatron+sequence", "tp"},
                                               {"dp=2,tp=2", "dp+megatron+sequence", "dp"},
                                               {"pp=2", "", ""},
                                               {"pp=3", "", ""},
                                               {"pp=2,dp=2", "", "dp"}})
    for (const std::string& store : {std::string(), axis}) cases.push_back({model, mesh, presets, store});
  return cases;
}

const std::vector<std::string> kStepModels = {"mlp-sgd", "gpt-adamw", "gpt-tied-sgd"};

class Steps : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override { batches_ = read_npz(kStepsFolder + model() + "/losses.npz"); }

  const std::string& model() const { return kStepModels[GetParam()]; }

  /// Calls test(case) for all cases of the model, or a sample; by `turn` from 0 to 2, three tests sample all of them.
  template <typename Test>
  void for_cases(size_t turn, const Test& test) {
    for (const StepCase& each : test::one_in(3, step_cases(model()), GetParam() + turn)) {
      SCOPED_TRACE(each.mesh + " " + each.presets + ", stored over " + each.store);
      test(each);
    }
  }

  Tensors batch(int64_t step) const {
    return {{"x", slice_of(batches_.at("x"), step)}, {"y", slice_of(batches_.at("y"), step)}};
  }

  std::map<std::string, Tensor> batches_;
};

TEST_P(Steps, give_the_losses_of_pytorch) {
  const Tensor& losses = batches_.at("losses");
  for_cases(0, [&](const StepCase& each) {
    Session session(each.compiled());
    for (int64_t i = 0; i < losses.count(); ++i) {
      const float wanted = losses.as<float>()[i], made = session.run(batch(i)).at("loss").as<float>()[0];
      EXPECT_NEAR(made, wanted, 1e-5 * std::abs(wanted)) << "step " << i;
    }
  });
}

// Sessions on the simulated device start and end with the CPU's states, bit by bit.
TEST_P(Steps, have_the_same_bits_on_the_simulated_device) {
  for_cases(1, [&](const StepCase& each) {
    const Program program = each.compiled();
    SessionOptions options = test::one_thread();
    Session cpu(program, options);
    options.device = "simulated";
    Session simulated(program, options);
    cpu.run(batch(0));
    simulated.set_states(cpu.states());
    for (int64_t i = 1; i < 4; ++i) test::expect_same(cpu.run(batch(i)), simulated.run(batch(i)));
    test::expect_same(cpu.states(), simulated.states());
  });
}

// Who wrote a step decides in which order forward and backward nodes come, and nothing marks where blocks end.
TEST_P(Steps, may_compute_activations_again) {
  for_cases(2, [&](const StepCase& each) {
    const Program held = each.compiled(), again = each.compiled("full");
    for (const std::string& note : again.summary().notes) {
      if (note.find("recomputation: ") == std::string::npos) continue;
      EXPECT_THAT(note, testing::ContainsRegex("so [1-9][0-9.]* [kM]?B less are held|free nothing"));
    }
    Session a(held, test::one_thread()), b(again, test::one_thread());
    for (int64_t i = 0; i < 3; ++i) test::expect_same(a.run(batch(i)), b.run(batch(i)));
    test::expect_same(a.states(), b.states());
  });
}

INSTANTIATE_TEST_SUITE_P(OnMeshes, Steps, testing::Range(size_t{0}, kStepModels.size()), [](const auto& info) {
  std::string name = kStepModels[info.param];
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

int64_t stored_bytes(const Program& program) {
  int64_t sum = 0;
  for (const StateInfo& state : program.states())
    if (state.changes) sum += state.bytes;
  return sum;
}

/// The bytes of rank 0's states, as a plan for a run holds them.
int64_t planned_bytes(const Program& program) {
  runtime::RankStates states;
  runtime::RankState rank(program.mesh(), 0, 1, states);
  const runtime::RankPlan plan(rank, program.impl().programs, {}, {});
  return static_cast<int64_t>(states.bytes());
}

TEST(StepStates, take_one_part_in_n_of_the_memory_where_they_are_stored_split) {
  for (const std::string model : {"mlp-sgd", "gpt-adamw", "gpt-tied-sgd"}) {
    const int64_t whole = stored_bytes(StepCase{model, "dp=1", "", ""}.compiled());
    for (const int64_t ranks : {2, 3, 4}) {
      const std::string mesh = "dp=" + std::to_string(ranks);
      const Program kept = StepCase{model, mesh, "", ""}.compiled();
      const Program split = StepCase{model, mesh, "", "dp"}.compiled();
      EXPECT_EQ(stored_bytes(kept), whole);
      EXPECT_LE(stored_bytes(split), whole / ranks + whole / 100) << model << " on " << mesh;
      // The plan holds each once: next values are made over the ones before.
      EXPECT_EQ(planned_bytes(split), stored_bytes(split)) << model << " on " << mesh;
      EXPECT_EQ(planned_bytes(kept), whole) << model << " on " << mesh;
    }
  }
}

using Counts = std::map<std::string, int64_t>;

Counts counts_of(const StepCase& step) {
  Counts counts;
  const Program program = step.compiled();
  for (const CollectiveSummary& entry : program.summary().collectives)
    for (const std::string& axis : entry.axes) counts[entry.kind + " " + axis] += entry.count;
  return counts;
}

// The gathered form of what is stored may stay: then it is gathered once, and more memory is needed.
TEST(KeptGathered, is_gathered_once_for_forward_and_backward) {
  const auto compiled = [](std::vector<std::string> kept) {
    Plan plan;
    plan.states = {"*=next.*"};
    plan.storage = {{"*=[dp,...]"}};
    plan.keep_gathered = std::move(kept);
    return compile(Model::load(kStepsFolder + "gpt-adamw/model.onnx"), Mesh::parse("dp=2"), plan);
  };
  const auto gathers = [](const Program& program) {
    int64_t count = 0;
    for (const CollectiveSummary& entry : program.summary().collectives)
      if (entry.kind == "all_gather") count += entry.count;
    return count;
  };
  const Program anew = compiled({}), kept = compiled({"*"});
  const int64_t once = gathers(kept);
  EXPECT_EQ(gathers(anew) - once, 14 - 3) << "the uses of the backward pass, but the first ones";
  EXPECT_LT(anew.figures(0).peak_bytes, kept.figures(0).peak_bytes);
  const int64_t some = gathers(compiled({"blocks.0*"}));
  EXPECT_LT(once, some);
  EXPECT_LT(some, gathers(anew));
  const auto batches = read_npz(kStepsFolder + "gpt-adamw/losses.npz");
  Session a(anew, test::one_thread()), b(kept, test::one_thread());
  for (int64_t i = 0; i < 3; ++i) {
    const Tensors batch = {{"x", slice_of(batches.at("x"), i)}, {"y", slice_of(batches.at("y"), i)}};
    test::expect_same(a.run(batch), b.run(batch));
  }
  test::expect_same(a.states(), b.states());
  EXPECT_THAT([&] { compiled({"no such*"}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("matches no state or parameter that is stored split")));
}

// What a step has to communicate, and no more.
TEST(StepCommunication, is_a_reduction_for_each_gradient_on_replicas) {
  EXPECT_EQ(counts_of({"mlp-sgd", "dp=2", "", ""}), (Counts{{"all_reduce dp", 4 + 1}})) << "four gradients, the loss";
  // 28 parameters, the loss and its count. The gradient of the looked up rows comes of the gathered tokens, which are
  // fewer than the rows.
  EXPECT_EQ(counts_of({"gpt-adamw", "dp=2", "", ""}), (Counts{{"all_reduce dp", 28 + 2}, {"all_gather dp", 2}}));
}

TEST(StepCommunication, is_a_gather_for_each_use_and_a_scatter_for_each_gradient_of_stored_states) {
  // Two weights and two biases forward; the weight of the backward pass was used just before. Four gradients; the loss.
  EXPECT_EQ(counts_of({"mlp-sgd", "dp=2", "", "dp"}),
            (Counts{{"all_gather dp", 4}, {"reduce_scatter dp", 4}, {"all_reduce dp", 1}}));
  // 29 uses forward and 14 backward, of which the first three share what the last ones forward have gathered; the rows
  // of the tokens' gradient and their indices; the loss, its count and the norm.
  const Counts counts = counts_of({"gpt-adamw", "dp=2", "", "dp"});
  EXPECT_EQ(counts.at("all_gather dp"), 29 + 14 - 3 + 2);
  EXPECT_EQ(counts.size(), 3u);
}

// A rank scatters rows into its own part of the table's gradient, and makes no other part.
TEST(StepCommunication, makes_a_tables_gradient_where_it_is_stored) {
  const Program program = StepCase{"gpt-adamw", "dp=2", "", "dp"}.compiled();
  const std::string machine = program.machine(0, {}, {});
  EXPECT_THAT(machine, testing::ContainsRegex("run ScatterNDShard 'val_595'.*-> buffer [0-9]+ float32\\[250,96\\]"))
      << "of 500 rows";
}

// Gradients that tp splits are scattered to where dp stores them, also along the same dimension.
TEST(StepCommunication, is_a_scatter_for_each_gradient_of_what_two_axes_split) {
  const Counts counts = counts_of({"gpt-adamw", "dp=2,tp=2", "", "dp"});
  EXPECT_EQ(counts.at("all_reduce dp"), 4) << "the loss, its count, the norm, and the few rows of positions in use";
  EXPECT_EQ(counts.at("all_reduce tp"), 13) << "what tp=2 has, but the norm's";
  EXPECT_EQ(counts.at("reduce_scatter dp"), 27);
}

// Weights that are stored over another axis, and used in parts over tp, are not among what stays whole.
TEST(StepCommunication, leaves_little_whole_where_storage_is_elsewhere) {
  for (const std::string store : {"", "dp"}) {
    const Program program = StepCase{"gpt-adamw", "dp=2,tp=2", "", store}.compiled();
    for (const std::string& warning : program.summary().warnings)
      EXPECT_THAT(warning, testing::Not(testing::HasSubstr("100 %"))) << store;
  }
}

TEST(StepCommunication, of_megatron_is_two_reductions_a_layer_in_each_direction) {
  constexpr int64_t kLayers = 2;
  // Beside the layers': the embedding's; the loss's, for the largest logit, the sum of exponentials and the label's
  // logit; the one for the head's operand, in the backward pass; the norm's. No logits are gathered.
  for (const std::string mesh : {"tp=2", "tp=3"})
    EXPECT_EQ(counts_of({"gpt-adamw", mesh, "", ""}), (Counts{{"all_reduce tp", kLayers * 4 + 1 + 3 + 1 + 1}})) << mesh;
}

TEST(StepCommunication, of_sequence_is_four_gathers_and_four_scatters_a_layer) {
  constexpr int64_t kLayers = 2;
  // Scattered: the embedding's result, and the gradient of the head's operand. Gathered: that operand, and the
  // gradients of tokens and positions. Reduced: the gradients of what stays whole, which every rank has of its part of
  // the sequence (scale and shift of five norms, two biases a layer), the loss's three and the norm.
  constexpr int64_t kScatters = kLayers * 4 + 2, kGathers = kLayers * 4 + 3, kReduced = 10 + kLayers * 2 + 3 + 1;
  for (const std::string mesh : {"tp=2", "tp=3", "tp=8"})
    EXPECT_EQ(counts_of({"gpt-adamw", mesh, "megatron+sequence", ""}),
              (Counts{{"reduce_scatter tp", kScatters}, {"all_gather tp", kGathers}, {"all_reduce tp", kReduced}}))
        << mesh;
  // Replicas reduce 28 gradients (that of the tokens is gathered), the loss and its count; what is split over the
  // sequence in one go.
  EXPECT_EQ(counts_of({"gpt-adamw", "dp=2,tp=2", "dp+megatron+sequence", ""}), (Counts{{"reduce_scatter tp", kScatters},
                                                                                       {"all_gather tp", kGathers},
                                                                                       {"all_reduce tp", kReduced},
                                                                                       {"all_reduce dp", 28 + 2},
                                                                                       {"all_gather dp", 2}}));
}

}  // namespace
}  // namespace tessera
