// A plan made of another one's is the plan that is made from nothing.
#include <gtest/gtest.h>

#include <filesystem>

#include "tessera/compiler/compile.h"
#include "tessera/onnx/import.h"
#include "tessera/runtime/rank_plan.h"

namespace tessera::compiler {
namespace {

namespace fs = std::filesystem;
using runtime::RankPlan;

struct Planned {
  int rebound = 0, all = 0;
};

/// Plans of every rank for `sizes`, one after the other, each made of the one before it where that is possible.
class PlansInTurn {
 public:
  PlansInTurn(const OnnxModel& model, const std::string& mesh, const std::string& presets) {
    CompileOptions options;
    options.mesh = Mesh::parse(mesh);
    options.presets = presets;
    Compiled compiled = compile(model, options);
    sizes_ = symbol_values(model, compiled.model->graph.get(), {}, nullptr);
    programs_ = runtime::RankPrograms::same(compiled.program);
  }

  const spmd::Hints& sizes() const { return sizes_; }

  Planned follow(const std::vector<spmd::Hints>& sequence) {
    const Planned counts = follow_on(sequence, "cpu"), simulated = follow_on(sequence, "simulated");
    // The order weighs the arena's bytes, to which a device with memory of its own adds inputs and outputs.
    EXPECT_EQ(counts.rebound > 0, simulated.rebound > 0);
    return counts;
  }

  Planned follow_on(const std::vector<spmd::Hints>& sequence, const std::string& device) {
    Planned counts;
    for (int rank = 0; rank < static_cast<int>(programs_->mesh().size()); ++rank) {
      runtime::RankStates states;
      runtime::RankState state(programs_->mesh(), rank, 2, states, device::make_device(device));
      std::unique_ptr<RankPlan> last;
      for (const spmd::Hints& sizes : sequence) {
        std::unique_ptr<RankPlan> fresh = planned(state, sizes);
        std::unique_ptr<RankPlan> rebound = last && fresh ? RankPlan::rebound(*last, symbols(sizes)) : nullptr;
        if (last && !fresh) {
          EXPECT_EQ(RankPlan::rebound(*last, symbols(sizes)), nullptr) << "it cannot be planned";
        }
        if (rebound) {
          EXPECT_EQ(rebound->text(), fresh->text()) << "rank " << rank;
          EXPECT_EQ(rebound->arena_bytes(), fresh->arena_bytes());
          ++counts.rebound;
        }
        ++counts.all;
        if (fresh) last = rebound ? std::move(rebound) : std::move(fresh);
      }
    }
    return counts;
  }

 private:
  static Symbols symbols(const spmd::Hints& sizes) { return {sizes.begin(), sizes.end()}; }

  // Null: the model does not run at these sizes.
  std::unique_ptr<RankPlan> planned(runtime::RankState& state, const spmd::Hints& sizes) const {
    try {
      return std::make_unique<RankPlan>(state, programs_, symbols(sizes), bind::Options{});
    } catch (const Error&) {
      return nullptr;
    }
  }

  spmd::Hints sizes_;
  std::shared_ptr<const runtime::RankPrograms> programs_;
};

OnnxModel whole_model(const std::string& name) {
  return import_model(fs::path(TESSERA_TEST_DATA) / "models" / name / "model.onnx");
}

struct PlannedOn {
  std::string mesh, presets;
};

class Rebound : public testing::TestWithParam<std::tuple<std::string, PlannedOn>> {};

TEST_P(Rebound, is_the_plan_made_from_nothing) {
  const auto& [model, on] = GetParam();
  PlansInTurn plans(whole_model(model), on.mesh, on.presets);
  std::vector<spmd::Hints> sequence{plans.sizes()};
  for (const auto& [symbol, size] : plans.sizes())
    for (int64_t other : {int64_t{1}, int64_t{2}, size, size + 1, size + 2, 2 * size, 4 * size + 3, int64_t{0}, size}) {
      spmd::Hints sizes = plans.sizes();
      sizes[symbol] = other;
      sequence.push_back(sizes);
    }
  // Several at a time.
  for (int64_t more : {1, 5, 3, 0}) {
    spmd::Hints sizes = plans.sizes();
    for (auto& [symbol, size] : sizes) size += more;
    sequence.push_back(sizes);
  }
  EXPECT_GT(plans.follow(sequence).rebound, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Rebound,
    testing::Combine(testing::Values("mlp", "gpt2", "gpt2-sdpa", "llama", "llama-cache", "bert", "vit", "resnet"),
                     testing::Values(PlannedOn{"tp=1", ""}, PlannedOn{"tp=2", ""}, PlannedOn{"tp=3", ""},
                                     PlannedOn{"dp=2", ""}, PlannedOn{"dp=2,tp=2", ""},
                                     PlannedOn{"tp=2", "megatron+sequence"})),
    [](const auto& info) {
      std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param).mesh + std::get<1>(info.param).presets;
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      return name;
    });

// The steps of decoding are never planned from scratch.
TEST(ReboundCache, grows_and_shrinks_from_plan_to_plan) {
  for (const char* mesh : {"tp=1", "tp=2"}) {
    PlansInTurn plans(whole_model("llama-cache"), mesh, "");
    std::vector<spmd::Hints> sequence;
    for (int64_t step = 0; step < 80; ++step) {
      spmd::Hints sizes = plans.sizes();
      for (auto& [symbol, size] : sizes)
        size = symbol.find("past") == std::string::npos ? 1 : 120 + (step < 50 ? step : 90 - step);
      sequence.push_back(sizes);
    }
    const Planned counts = plans.follow(sequence);
    const int ranks = static_cast<int>(Mesh::parse(mesh).size());
    EXPECT_EQ(counts.rebound, counts.all - ranks) << "all but each rank's first, on " << mesh;
  }
}

}  // namespace
}  // namespace tessera::compiler
