// Searches for plans, with what the compiler and the simulator say of each.
#include "tessera/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/small_model.h"
#include "error_of.h"
#include "plan/deep_model.h"
#include "tessera/files.h"
#include "tessera/inspect.h"
#include "tessera/plan/choice.h"
#include "tessera/plan/tensor_kinds.h"

namespace tessera {
namespace {

using test::error_of;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kAttention = R"(
attention (float[batch, s, 8] x) => (float[batch, s, 8] y)
    <float[8, 8] wq, float[8, 8] wk, float[8, 8] wv, float[8, 8] wo> {
  q = MatMul (x, wq)
  k = MatMul (x, wk)
  v = MatMul (x, wv)
  a = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v)
  y = MatMul (a, wo)
})";

// Slow enough that computation, memory and links of two levels all count for models of a few kilobytes.
MachineModel slow_machine() {
  MachineModel machine;
  machine.name = "slow";
  machine.kernel = 1e-7;
  machine.products[DType::float32] = {1e9, {1, 1, 1}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"near", 2, 1e-7, 4e9}, {"far", 0, 1e-6, 1e9}};
  machine.memory = 1e9;
  return machine;
}

PlannerSettings settings_for(int64_t devices, int64_t batch = 8) {
  PlannerSettings settings;
  settings.predict.machine = slow_machine();
  settings.devices = devices;
  settings.fixed.shapes = {{"batch", batch}};
  return settings;
}

Training squares() {
  Training training;
  training.loss = "mse";
  return training;
}

struct Simulated {
  double seconds = 0;
  int64_t bytes = 0;
  std::string text;
};

// One plan, by the calls that a person would make.
Simulated simulated(const Model& model, const PlannerSettings& settings, const Plan& plan) {
  const Mesh mesh = plan.mesh.empty() ? Mesh() : Mesh::parse(plan.mesh);
  CompileOptions options;
  settings.predict.choose(options, mesh);
  Plan asked = plan;
  asked.shapes = model.complete(settings.fixed.shapes);
  const Program program = [&] {
    if (!settings.training) return compile(model, mesh, asked, options);
    Training training = *settings.training;
    training.micro_batches = std::max(1, plan.micro_batches);
    training.sizes = asked.shapes;
    asked.shapes.clear();
    return compile(training_step(model, training).model, mesh, asked, options);
  }();
  Simulated made{predict(program, settings.predict).step_ms, 0, plan.to_json()};
  for (const int64_t rank : program.unlike_ranks()) made.bytes = std::max(made.bytes, program.figures(rank).peak_bytes);
  return made;
}

std::vector<Simulated> all_plans(const Model& model, const PlannerSettings& settings, int64_t batch) {
  const plan::Space space{.devices = settings.devices,
                          .trains = settings.training.has_value(),
                          .context = context_extent(model, model.complete(settings.fixed.shapes)),
                          .batch = batch,
                          .fixed = settings.fixed};
  std::vector<Simulated> all;
  for (const plan::Choice& choice : plan::choices(space)) {
    try {
      all.push_back(simulated(model, settings, choice.over(settings.fixed)));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    }
  }
  return all;
}

// The best of all that fit, by time or by memory.
void expect_the_best(const Model& model, PlannerSettings settings, int64_t batch) {
  settings.annotations = false;
  std::vector<Simulated> all = all_plans(model, settings, batch);
  ASSERT_FALSE(all.empty());
  const auto faster = [](const Simulated& a, const Simulated& b) { return a.seconds < b.seconds; };
  const auto smaller = [](const Simulated& a, const Simulated& b) {
    return std::pair(a.bytes, a.seconds) < std::pair(b.bytes, b.seconds);
  };
  const PlannerReport any = find_plan(model, settings);
  const Simulated& fastest = *std::min_element(all.begin(), all.end(), faster);
  EXPECT_DOUBLE_EQ(any.best.front().prediction.step_ms, fastest.seconds) << fastest.text;
  EXPECT_EQ(any.left, 0);
  EXPECT_GE(any.best.front().prediction.step_ms, any.bound_ms);

  settings.objective = PlanObjective::memory;
  const Simulated& smallest = *std::min_element(all.begin(), all.end(), smaller);
  EXPECT_EQ(find_plan(model, settings).best.front().peak_bytes, smallest.bytes) << smallest.text;

  settings.objective = PlanObjective::time;
  settings.memory_limit = static_cast<double>(smallest.bytes + fastest.bytes) / 2;
  std::erase_if(all, [&](const Simulated& each) { return static_cast<double>(each.bytes) > settings.memory_limit; });
  const PlannerReport within = find_plan(model, settings);
  EXPECT_DOUBLE_EQ(within.best.front().prediction.step_ms, std::min_element(all.begin(), all.end(), faster)->seconds);
  EXPECT_LE(static_cast<double>(within.best.front().peak_bytes), settings.memory_limit);
}

// All layouts of a matrix: each axis splits rows, columns, or neither; two axes of one dimension nest either way.
std::vector<std::string> layouts_of_matrix(const Mesh& mesh) {
  std::vector<plan::Entries> all = {plan::Entries("", 2)};
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes()) axes.push_back(axis.name);
  std::set<std::string> texts;
  do {
    std::vector<plan::Entries> some = {plan::Entries("", 2)};
    for (const std::string& axis : axes) {
      std::vector<plan::Entries> more;
      for (const plan::Entries& each : some)
        for (const int dim : {-1, 0, 1}) more.push_back(each.moved(axis, dim));
      some = std::move(more);
    }
    for (const plan::Entries& each : some) texts.insert(each.str());
  } while (std::next_permutation(axes.begin(), axes.end()));
  return {texts.begin(), texts.end()};
}

// Seconds of the fastest of all plans with the layouts of presets or any others of two kinds of matrices.
double fastest_annotated(const Model& model, const PlannerSettings& settings, int64_t batch, const std::string& up,
                         const std::string& down) {
  const plan::Space space{
      .devices = settings.devices, .trains = settings.training.has_value(), .batch = batch, .fixed = settings.fixed};
  double least = std::numeric_limits<double>::infinity();
  for (const plan::Choice& choice : plan::choices(space)) {
    std::vector<std::string> layouts = layouts_of_matrix(choice.mesh);
    layouts.emplace_back();  // of presets
    for (const std::string& a : layouts)
      for (const std::string& b : layouts) {
        Plan plan = choice.over(settings.fixed);
        if (!a.empty()) plan.annotations.push_back({up + "=" + a});
        if (!b.empty()) plan.annotations.push_back({down + "=" + b});
        least = std::min(least, simulated(model, settings, plan).seconds);
      }
  }
  return least;
}

class Planner : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
  Model model_ = Model::load(test::write_model(folder_, test::kPair));
};

TEST_F(Planner, finds_what_an_exhaustive_search_finds) {
  for (const int64_t devices : {1, 2, 8}) {
    SCOPED_TRACE(devices);
    expect_the_best(model_, settings_for(devices, 64), 64);
  }
}

TEST_F(Planner, finds_it_for_training_steps_too) {
  PlannerSettings settings = settings_for(2, 2);
  settings.training = squares();
  settings.fixed.recompute = "none";
  expect_the_best(model_, settings, 2);
  settings.devices = 4;
  settings.fixed.recompute = "full";
  settings.fixed.micro_batches = 2;
  settings.fixed.bucket_bytes = 0;
  expect_the_best(model_, settings, 4);
}

TEST_F(Planner, finds_the_layouts_that_an_exhaustive_search_finds) {
  for (const char* mesh : {"dp=2", "fsdp=2", "tp=2", "dp=2,tp=2", "tp=8"}) {
    SCOPED_TRACE(mesh);
    const Mesh parsed = Mesh::parse(mesh);
    PlannerSettings settings = settings_for(parsed.size(), 4);
    settings.fixed.mesh = mesh;
    settings.fixed.bucket_bytes = 0;
    settings.best = 100;
    const PlannerReport report = find_plan(model_, settings);
    EXPECT_DOUBLE_EQ(report.best.front().prediction.step_ms, fastest_annotated(model_, settings, 4, "up", "down"))
        << report.best.front().text;
    settings.annotations = false;
    EXPECT_LE(report.best.front().prediction.step_ms, find_plan(model_, settings).best.front().prediction.step_ms);
  }
}

// One sequence, so that its tokens are what can be split.
TEST_F(Planner, finds_split_contexts) {
  const Model model = Model::load(test::write_model(folder_, kAttention));
  for (const int64_t devices : {2, 4}) {
    PlannerSettings settings = settings_for(devices, 1);
    settings.fixed.shapes["s"] = 64;
    settings.fixed.bucket_bytes = 0;
    expect_the_best(model, settings, 1);
  }
  PlannerSettings settings = settings_for(4, 1);
  settings.fixed.shapes["s"] = 256;
  EXPECT_THAT(find_plan(model, settings).best.front().text, HasSubstr("context"));
  settings = settings_for(2, 1);
  settings.fixed.shapes["s"] = 64;
  settings.training = squares();
  settings.fixed.recompute = "none";
  settings.fixed.bucket_bytes = 0;
  expect_the_best(model, settings, 1);
}

// In simulation, and on the same devices.
TEST_F(Planner, is_never_worse_than_a_preset) {
  const std::pair<const char*, const char*> presets[] = {{"dp=4", "dp"},
                                                         {"dp=4", "zero1"},
                                                         {"dp=4", "zero2"},
                                                         {"dp=4", "fsdp"},
                                                         {"fsdp=4", "zero3"},
                                                         {"dp=2,fsdp=2", "hsdp"},
                                                         {"tp=4", "megatron"},
                                                         {"tp=4", "megatron+sequence"},
                                                         {"tp=4", "megatron+features"},
                                                         {"dp=2,tp=2", "dp+megatron"},
                                                         {"dp=2,tp=2", "2d"},
                                                         {"tp=4", "sequence"}};
  for (const char* name : {"mlp", "gpt2"}) {
    const Model model = Model::load(std::string(TESSERA_TEST_DATA) + "/models/" + name + "/model.onnx");
    PlannerSettings settings = settings_for(4);
    settings.fixed.shapes = model.complete({});
    if (std::string(name) == "mlp") settings.training = squares(), settings.fixed.recompute = "none";
    settings.fixed.micro_batches = 1;
    settings.best = 1;
    const double best = find_plan(model, settings).best.front().prediction.step_ms;
    for (const auto& [mesh, preset] : presets) {
      Plan plan;
      plan.mesh = mesh;
      plan.presets = preset;
      EXPECT_LE(best, simulated(model, settings, plan).seconds * (1 + 1e-12)) << name << ", " << mesh << ", " << preset;
    }
  }
}

// Twelve layers, so that programs of four stand for all.
class DeepPlanner : public testing::Test {
 protected:
  DeepPlanner() {
    write_file(folder_ / "deep.onnxtxt", test::deep_model(12, 2048, 32000));
    model_ = Model::load(folder_ / "deep.onnxtxt");
    settings_.predict.machine = load_machine("h100-sxm");
    settings_.devices = 8;
    settings_.seconds = 100;
    settings_.annotations = false;
    settings_.fixed.shapes = {{"batch", 32}, {"s", 2048}};
    settings_.training.emplace();
    settings_.training->compute = DType::bfloat16;
  }

  test::TemporaryFolder folder_;
  Model model_;
  PlannerSettings settings_;
};

TEST_F(DeepPlanner, looks_at_the_whole_of_the_best_plan) {
  settings_.fixed.bucket_bytes = 0;
  settings_.fixed.micro_batches = 1;
  settings_.fixed.recompute = "none";
  const PlannerReport report = find_plan(model_, settings_);
  const PlannedOption& best = report.best.front();
  EXPECT_EQ(best.extrapolated, "");
  const Simulated whole = simulated(model_, settings_, best.plan);
  EXPECT_NEAR(best.prediction.step_ms, whole.seconds, 0.01 * whole.seconds);
  EXPECT_EQ(best.peak_bytes, whole.bytes);
  EXPECT_THAT(report.best.back().extrapolated, HasSubstr(" of 12 blocks"));
  EXPECT_LT(report.evaluated, report.candidates / 2);
  for (const auto& [mesh, preset] : {std::pair("fsdp=8", "fsdp"), {"tp=8", "megatron+sequence"}}) {
    Plan plan;
    plan.mesh = mesh;
    plan.presets = preset;
    plan.bucket_bytes = 0;
    EXPECT_LE(best.prediction.step_ms, simulated(model_, settings_, plan).seconds * 1.001) << mesh;
  }
}

// With the memory of what seems to fit best, but does not: the whole program decides.
TEST_F(DeepPlanner, takes_what_fits_as_a_whole) {
  settings_.fixed.bucket_bytes = 0;
  settings_.fixed.micro_batches = 1;
  settings_.fixed.presets = "fsdp";
  settings_.fixed.mesh = "fsdp=8";
  const int64_t none = find_plan(model_, settings_).best.front().peak_bytes;
  settings_.memory_limit = static_cast<double>(none) - 1;
  const PlannerReport report = find_plan(model_, settings_);
  EXPECT_LT(report.best.front().peak_bytes, none);
  EXPECT_EQ(simulated(model_, settings_, report.best.front().plan).bytes, report.best.front().peak_bytes);
}

// Memory for the whole program, and not a byte more: if small programs foretell a larger one, it still is found.
TEST_F(DeepPlanner, looks_at_the_whole_of_what_seems_a_little_too_large) {
  settings_.fixed.bucket_bytes = 0;
  settings_.seconds = 1000;
  const std::tuple<const char*, const char*, const char*, int> plans[] = {{"dp=8", "zero1", "full", 4},
                                                                          {"fsdp=8", "fsdp", "none", 1}};
  for (const auto& [mesh, presets, recompute, micro_batches] : plans) {
    SCOPED_TRACE(mesh);
    settings_.fixed.mesh = mesh;
    settings_.fixed.presets = presets;
    settings_.fixed.recompute = recompute;
    settings_.fixed.micro_batches = micro_batches;
    settings_.memory_limit = static_cast<double>(simulated(model_, settings_, settings_.fixed).bytes);
    const PlannerReport report = find_plan(model_, settings_);
    EXPECT_EQ(report.best.front().peak_bytes, settings_.memory_limit);
    EXPECT_EQ(report.best.front().extrapolated, "");
  }
}

TEST_F(DeepPlanner, has_less_time_only_if_few_blocks_stand_for_all) {
  EXPECT_EQ(usual_search_seconds(model_, settings_), 10);
  settings_.devices = 128;
  EXPECT_EQ(usual_search_seconds(model_, settings_), 60);
  settings_.devices = 8;
  PlannerSettings unlike = settings_;
  unlike.fixed.annotations = {{"l.3.up=[-,tp]"}};
  EXPECT_EQ(usual_search_seconds(model_, unlike), 60);
  PlannerSettings measured = settings_;
  measured.measure = [](const Program&, PredictSettings&) { return false; };
  EXPECT_EQ(usual_search_seconds(model_, measured), 60);
}

TEST_F(DeepPlanner, calls_what_it_extrapolates_an_estimate) {
  settings_.fixed.bucket_bytes = 0;
  settings_.fixed.micro_batches = 1;
  settings_.fixed.recompute = "full";
  settings_.memory_limit = 1e9;
  EXPECT_THAT(error_of([&] { find_plan(model_, settings_); }),
              AllOf(HasSubstr("the smallest peak found is about"), HasSubstr("by the same estimate, ")));
}

TEST_F(Planner, says_what_decided_and_what_would_win) {
  const PlannerReport report = find_plan(model_, settings_for(4, 64));
  ASSERT_GT(report.best.size(), 2U);
  EXPECT_LE(report.best.size(), 5U);
  EXPECT_EQ(report.best.front().decided, "");
  for (size_t i = 1; i < report.best.size(); ++i) {
    EXPECT_GE(report.best[i].prediction.step_ms, report.best[i - 1].prediction.step_ms);
    EXPECT_NE(report.best[i].decided, "");
  }
  EXPECT_EQ(report.candidates, report.evaluated + report.too_large + report.too_slow + report.refused + report.left);
  EXPECT_THAT(report.not_searched, testing::Contains(HasSubstr("pipelines")));
  EXPECT_TRUE(is_searched(PlanDimension::buckets));
  EXPECT_FALSE(is_searched(PlanDimension::pipelines));
}

// "if 'far' were 3 times as fast": with links that are, it is at least as fast as the best one was.
TEST_F(Planner, what_would_win_does) {
  PlannerSettings settings = settings_for(4, 16);
  settings.best = 8;
  const PlannerReport report = find_plan(model_, settings);
  const Plan best = report.best.front().plan;
  int tried = 0;
  for (const PlannedOption& option : report.best)
    for (const std::string& win : option.wins) {
      char link[16] = {}, how[16] = {};
      double factor = 0;
      ASSERT_EQ(std::sscanf(win.c_str(), "if '%15[a-z]' were %lf times as %15s", link, &factor, how), 3) << win;
      ++tried;
      PlannerSettings changed = settings;
      // Rounded to three digits, beyond the exact factor or a little before it.
      const double beyond = factor * 1.01;
      for (MachineModel::Link& each : changed.predict.machine.links)
        if (each.name == link) each.bandwidth *= std::string(how) == "fast" ? beyond : 1 / beyond;
      EXPECT_LE(simulated(model_, changed, option.plan).seconds, simulated(model_, changed, best).seconds * 1.001)
          << option.text << ": " << win;
    }
  EXPECT_GT(tried, 0);
}

TEST_F(Planner, says_what_would_fit) {
  PlannerSettings settings = settings_for(2);
  settings.training = squares();
  settings.fixed.recompute = "none";
  settings.fixed.bucket_bytes = 0;
  settings.memory_limit = 5000;
  EXPECT_THAT(error_of([&] { find_plan(model_, settings); }),
              AllOf(HasSubstr("no plan for 2 devices fits into the 4.9 KiB of a rank: the smallest peak found is"),
                    HasSubstr("devices are enough")));
}

TEST_F(Planner, mistakes_name_the_fix) {
  PlannerSettings settings = settings_for(4);
  settings.fixed.mesh = "dp=2";
  EXPECT_THAT(error_of([&] { find_plan(model_, settings); }), HasSubstr("has 2 ranks, but there are 4 devices"));
  settings.fixed.mesh.clear();
  settings.predict.machine.links = {{"near", 2, 1e-6, 1e9}};
  EXPECT_THAT(error_of([&] { find_plan(model_, settings); }), HasSubstr("joins at most 2 of the mesh's 4 ranks"));
}

TEST_F(Planner, counts_the_intensity_over_slow_links) {
  MachineModel machine = slow_machine();
  machine.links = {{"near", 4, 0, 1e9}, {"far", 0, 0, 1e6}};
  EXPECT_EQ(slow_level(model_, {{"batch", 64}}, machine, 4, DType::float32), std::nullopt);
  const std::optional<SlowLevel> level = slow_level(model_, {{"batch", 64}}, machine, 16, DType::float32);
  ASSERT_TRUE(level);
  EXPECT_EQ(level->link, "far");
  EXPECT_EQ(level->slice, 4);
  EXPECT_EQ(level->tokens_per_slice, 16);
  EXPECT_FALSE(level->counts_tokens);
  EXPECT_EQ(level->intensity, 4000);
  EXPECT_EQ(level->needed, 8000);
  EXPECT_EQ(level->least_batch, 32000);
  EXPECT_FALSE(level->is_hidden());
}

// Measurements that make links slower, as the first plan turns out to be.
TEST_F(Planner, measures_the_best_plan_until_the_best_is_measured) {
  PlannerSettings settings = settings_for(4);
  settings.training = squares();
  settings.fixed.recompute = "none";
  settings.fixed.micro_batches = 1;
  settings.fixed.bucket_bytes = 0;
  const PlannerReport expected = find_plan(model_, settings);
  ASSERT_GT(expected.best.front().prediction.exposed_ms, 0) << "or nothing depends on links";
  int calls = 0;
  std::vector<std::string> measured;
  settings.measure = [&](const Program& program, PredictSettings& predict) {
    measured.push_back(program.mesh().str());
    if (++calls > 1) return false;
    for (MachineModel::Link& link : predict.machine.links) link.bandwidth /= 100;
    return true;
  };
  const PlannerReport report = find_plan(model_, settings);
  EXPECT_EQ(measured.front(), expected.best.front().plan.mesh);
  EXPECT_EQ(report.measured, calls);
  EXPECT_GT(report.best.front().prediction.step_ms, expected.best.front().prediction.step_ms);
  for (const PlannedOption& option : report.best)
    EXPECT_GE(option.prediction.step_ms, report.best.front().prediction.step_ms) << option.text;
}

}  // namespace
}  // namespace tessera
