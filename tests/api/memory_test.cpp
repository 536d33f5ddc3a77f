// The memory that a session keeps: the model's pages, and the planned memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <future>
#include <numeric>
#include <string>

#include "api/small_model.h"
#include "error_of.h"
#include "tessera/inspect.h"
#include "tessera/training.h"

namespace tessera {
namespace {

/// The most bytes that were resident at once, file pages included, since the last reset.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kibibytes = 0; word == "VmHWM:" && status >> kibibytes) return kibibytes << 10;
  return 0;
}

/// Bytes that this process has now, of a kind that /proc/self/status names.
int64_t bytes_now(const std::string& kind) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kibibytes = 0; word == kind + ":" && status >> kibibytes) return kibibytes << 10;
  return 0;
}
int64_t anonymous_bytes() {
  return bytes_now("RssAnon");
}

void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

/// Products with square weights, one after the other.
std::string chain(int layers, int width) {
  std::string states, nodes;
  for (int layer = 0; layer < layers; ++layer) {
    states += fmt::format("{}float[{}, {}] w{}", layer ? ", " : "", width, width, layer);
    nodes += fmt::format("x{} = MatMul (x{}, w{})\n", layer + 1, layer, layer);
  }
  return fmt::format("chain (float[batch, {0}] x0) => (float[batch, {0}] x{1}) <{2}> {{\n{3}}}", width, layers, states,
                     nodes);
}

class Resident : public testing::TestWithParam<const char*> {};

// Each rank holds its shards, packed, and no one a copy of the whole, or pages of the file that have been packed.
TEST_P(Resident, memory_is_the_plan) {
  constexpr double kSlack = 1.1;
  constexpr int64_t kRuntime = 16 << 20;  // what the small model below did not bring in
  constexpr int kLayers = 16;             // the copy of one weight, while it is packed, is small beside all
  test::TemporaryFolder folder;
  const std::filesystem::path path = test::write_model(folder, chain(kLayers, 1024));
  const Tensors inputs = {{"x0", test::ramp({4, 1024})}};
  {  // what any session brings in: the code that runs, kernels that the library generates, threads' stacks
    test::TemporaryFolder other;
    Session small(compile(Model::load(test::write_model(other, chain(2, 256))), Mesh::parse(GetParam())));
    small.run({{"x0", test::ramp({4, 256})}});
  }
  reset_peak();
  const int64_t before = peak_resident_bytes();
  ASSERT_GT(before, 0);
  Session session(compile(Model::load(path), Mesh::parse(GetParam())));
  session.run(inputs);
  const int64_t growth = peak_resident_bytes() - before;
  const std::vector<int64_t> peaks = session.peak_bytes(inputs);
  const int64_t planned = std::accumulate(peaks.begin(), peaks.end(), int64_t{0});
  RecordProperty("growth_bytes", std::to_string(growth));
  RecordProperty("planned_bytes", std::to_string(planned));
  if (!test::kCountsMemory) return;
  EXPECT_LE(static_cast<double>(growth), kSlack * static_cast<double>(planned) + kRuntime);
}

// The memory of all ranks, whose peaks meet within a step; with activations held, and computed again.
TEST_P(Resident, memory_of_training_is_the_plan) {
  constexpr double kSlack = 1.03;
  constexpr int64_t kRuntime = 8 << 20;
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, chain(6, 1024)));
  const Tensors batch = {{"x0", test::ramp({1024, 1024})}, {"labels", test::ramp({1024, 1024})}};
  Training training;
  training.loss = "mse";
  training.sizes = {{"batch", 1024}};
  {
    Training small = training;
    small.sizes = {{"batch", 64}};
    Session session(compile(training_step(model, small).model, Mesh::parse(GetParam())));
    session.run({{"x0", test::ramp({64, 1024})}, {"labels", test::ramp({64, 1024})}});
  }
  for (const char* recompute : {"none", "full"}) {
    SCOPED_TRACE(recompute);
    Plan plan;
    plan.recompute = recompute;
    const Program program = compile(training_step(model, training).model, Mesh::parse(GetParam()), plan);
    reset_peak();
    const int64_t before = anonymous_bytes();
    Session session(program);
    for (int i = 0; i < 2; ++i) session.run(batch);
    // Pages of the file are gone by then.
    const int64_t growth = peak_resident_bytes() - bytes_now("RssFile") - before;
    const std::vector<int64_t> peaks = session.peak_bytes(batch);
    const int64_t planned = std::accumulate(peaks.begin(), peaks.end(), int64_t{0});
    if (!test::kCountsMemory) continue;
    EXPECT_LT(growth, kSlack * static_cast<double>(planned) + kRuntime) << planned;
    EXPECT_GT(growth, (2 - kSlack) * static_cast<double>(planned) - kRuntime) << planned;
  }
}

// The figures of a plan are those of the session that runs it, with as many threads and communications under way.
TEST_P(Resident, figures_are_those_of_the_session) {
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, chain(4, 256)));
  const Tensors batch = {{"x0", test::ramp({64, 256})}, {"labels", test::ramp({64, 256})}};
  Training training;
  training.loss = "mse";
  training.sizes = {{"batch", 64}};
  const TrainingStep step = training_step(model, training);
  for (const int threads : {1, 2, 5})
    for (const bool overlap : {true, false})
      for (const int prefetch : {1, 4}) {
        CompileOptions options;
        options.run = {.threads_per_rank = threads, .overlap = overlap, .prefetch = prefetch};
        const Program program = compile(step.model, Mesh::parse(GetParam()), {}, options);
        SessionOptions running;
        running.threads_per_rank = threads;
        running.overlap = overlap;
        running.prefetch = prefetch;
        Session session(program, running);
        const std::vector<int64_t> peaks = session.peak_bytes(batch);
        for (size_t rank = 0; rank < peaks.size(); ++rank)
          EXPECT_EQ(program.figures(static_cast<int64_t>(rank)).peak_bytes, peaks[rank])
              << threads << " threads, overlap " << overlap << ", prefetch " << prefetch;
      }
}

// Ranks make their own shards of parameters that begin with random numbers, and nobody makes the whole.
TEST_P(Resident, memory_of_parameters_that_begin_by_the_seed_is_the_plan) {
  constexpr double kSlack = 1.05;
  constexpr int64_t kRuntime = 12 << 20;
  test::TemporaryFolder folder;
  const std::filesystem::path path = test::write_model(folder, chain(16, 1024));
  ASSERT_GT(std::filesystem::file_size(path), 4U * kRuntime);
  const Model model = Model::load(path);
  const Tensors batch = {{"x0", test::ramp({8, 1024})}, {"labels", test::ramp({8, 1024})}};
  Training training;
  training.loss = "mse";
  training.optimizer = "sgd";
  training.sizes = {{"batch", 8}};
  training.init = {{"*", "normal:0.02"}};
  {
    test::TemporaryFolder other;
    const Model small = Model::load(test::write_model(other, chain(2, 1024)));
    Session session(compile(training_step(small, training).model, Mesh::parse(GetParam())));
    session.run(batch);
  }
  reset_peak();
  const int64_t before = peak_resident_bytes();
  Session session(compile(training_step(model, training).model, Mesh::parse(GetParam())));
  session.run(batch);
  const int64_t growth = peak_resident_bytes() - before;
  const std::vector<int64_t> peaks = session.peak_bytes(batch);
  const int64_t planned = std::accumulate(peaks.begin(), peaks.end(), int64_t{0});
  RecordProperty("growth_bytes", std::to_string(growth));
  RecordProperty("planned_bytes", std::to_string(planned));
  if (!test::kCountsMemory) return;
  EXPECT_LT(static_cast<double>(growth), kSlack * static_cast<double>(planned) + kRuntime) << planned;
}

INSTANTIATE_TEST_SUITE_P(Meshes, Resident, testing::Values("tp=1", "tp=2", "tp=4"));

std::string refusal(const Program& program, const Tensors& inputs, size_t limit) {
  try {
    SessionOptions options;
    options.memory_limit = limit;
    Session(program, options).run(inputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return error.what();
  }
  return "";
}

// The limit is this process', for all of its ranks together.
TEST(MemoryLimit, names_what_is_largest) {
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, test::kPair));
  const Tensors inputs = {{"x", test::ramp({4096, 8})}};
  for (const char* mesh : {"", "tp=2", "tp=4"}) {
    const Program program = compile(model, *mesh ? Mesh::parse(mesh) : Mesh());
    EXPECT_EQ(refusal(program, inputs, size_t{16} << 20), "") << mesh;
    const std::string said = refusal(program, inputs, size_t{192} << 10);
    EXPECT_NE(said.find("[memory]"), std::string::npos) << said;
    EXPECT_NE(said.find("192.0 KiB"), std::string::npos) << said;
    EXPECT_NE(said.find("'hidden'") + 1 + said.find("'active'") + 1 + said.find("'y'") + 1, 0u) << said;
  }
}

TEST(MemoryLimit, counts_packed_weights) {
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, chain(4, 512)));
  const std::string said = refusal(compile(model, Mesh()), {{"x0", test::ramp({4, 512})}}, size_t{2} << 20);
  EXPECT_NE(said.find("'w"), std::string::npos) << said;
}

// A weight that is computed in float32 is widened before it is packed.
TEST(MemoryLimit, counts_what_packing_needs_meanwhile) {
  const std::vector<std::string> sets = machine().instruction_sets;
  if (std::find(sets.begin(), sets.end(), "avx512_fp16") != sets.end())
    GTEST_SKIP() << "this machine computes in float16, and packs without scratch memory";
  test::TemporaryFolder folder;
  OnnxModel text = parse_text(
      "half (float16[batch, 512] x) => (float16[batch, 512] y) <float16[512, 512] w> {\n"
      "  y = MatMul (x, w)\n"
      "}");
  Value* weight = text.graph->find("w");
  weight->data = Tensor::zeros(DType::float16, {512, 512});
  export_model(text, folder / "model.onnx");
  const Program program = compile(Model::load(folder / "model.onnx"), Mesh());
  const Tensors inputs = {{"x", Tensor::zeros(DType::float16, {1, 512})}};
  // 1 MiB packed, and as much while it is packed.
  EXPECT_EQ(refusal(program, inputs, size_t{3} << 20), "");
  const std::string said = refusal(program, inputs, size_t{3} << 19);
  EXPECT_NE(said.find("what weights are packed from and in"), std::string::npos) << said;
}

// Ranks that need the same weights in the same form share them, in what is planned and in what is held.
TEST(SharedWeights, are_there_once) {
  constexpr int64_t kWeights = 16 << 20, kOne = 4 << 20, kSlack = 1 << 20;
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, chain(4, 1024)));
  const Tensors inputs = {{"x0", test::ramp({4, 1024})}};
  struct Case {
    const char* mesh;
    int64_t packed;  // of what is packed at a time: a rank's part of a weight
  };
  for (const auto& [mesh, packed] : {Case{"dp=1", kOne}, {"dp=4", kOne}, {"dp=2,tp=2", kOne / 2}})
    for (const DType type : {DType::float32, DType::bfloat16}) {
      SCOPED_TRACE(mesh);
      Plan plan;
      plan.dtype = type;
      const int64_t narrow = type == DType::float32 ? 1 : 2;
      test::TemporaryFolder other;
      Session warm(compile(Model::load(test::write_model(other, chain(1, 64))), Mesh::parse(mesh), plan));
      warm.run({{"x0", test::ramp({4, 64})}});
      const int64_t before = anonymous_bytes();
      Session session(compile(model, Mesh::parse(mesh), plan));
      session.run(inputs);
      EXPECT_NEAR(session.process_bytes(), (kWeights + packed) / narrow, kSlack) << "one is packed at a time";
      if (test::kCountsMemory) {
        EXPECT_LT(anonymous_bytes() - before, kWeights / narrow + kOne);
      }
    }
}

// Parts of rounded weights and stacks of experts' weights are made by what each compilation makes anew.
TEST(SharedWeights, are_there_once_for_programs_of_all_sizes) {
  constexpr int64_t kSlack = 32 << 10;  // of 384 KiB of weights
  const std::string divided =
      "divided (float[batch, 256] x, float[rows, 1] shift) => (float[batch, 256] y) <float[256, 768] w> {\n"
      "  all = MatMul (x, w)\n"
      "  q, k, v = Split <axis = 1, num_outputs = 3> (all)\n"
      "  a = Mul (q, k)\n"
      "  b = Add (a, v)\n"
      "  y = Add (b, shift)\n"
      "}";
  test::TemporaryFolder folder;
  Plan plan{.presets = "megatron"};
  plan.dtype = DType::bfloat16;
  const Program program = compile(Model::load(test::write_model(folder, divided)), Mesh::parse("tp=2"), plan);
  Session session(program);
  session.run({{"x", test::ramp({2, 256})}, {"shift", test::ramp({2, 1})}});
  const int64_t before = session.process_bytes();
  session.run({{"x", test::ramp({2, 256})}, {"shift", test::ramp({1, 1})}});  // a program of its own
  EXPECT_NEAR(session.process_bytes(), before, kSlack);
}

// What a run needs is known, and refused, before any of it is there.
TEST(MemoryLimit, refuses_before_anything_is_loaded) {
  constexpr int64_t kLittle = 4 << 20;
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, chain(16, 1024)));  // 64 MiB
  const Tensors inputs = {{"x0", test::ramp({4, 1024})}};
  const Program program = compile(model, Mesh());
  const int64_t needed = [&] {
    Session session(program);
    session.run(inputs);
    return session.process_bytes();
  }();
  EXPECT_EQ(refusal(program, inputs, static_cast<size_t>(needed)), "");
  const int64_t before = anonymous_bytes();
  reset_peak();
  const int64_t most = peak_resident_bytes();
  const std::string said = refusal(program, inputs, static_cast<size_t>(needed - 1));
  EXPECT_NE(said.find(fmt::format("{} B, which is more than the limit of {} B", needed, needed - 1)), std::string::npos)
      << said;
  EXPECT_NE(said.find("all weights ('w"), std::string::npos) << said;
  if (!test::kCountsMemory) return;
  EXPECT_LT(anonymous_bytes() - before, kLittle);
  EXPECT_LT(peak_resident_bytes() - most, kLittle);
}

TEST(MemoryLimit, counts_outputs_that_somebody_has) {
  test::TemporaryFolder folder;
  const Model model = Model::load(
      test::write_model(folder, "twice (float[batch, 1024] x) => (float[batch, 1024] y) { y = Add (x, x) }"));
  SessionOptions options;
  options.memory_limit = size_t{4} << 20;
  for (const char* mesh : {"", "dp=2"}) {
    Session session(compile(model, *mesh ? Mesh::parse(mesh) : Mesh()), options);
    const Tensors inputs = {{"x", test::ramp({256, 1024})}};
    std::vector<Tensors> held;
    std::string said;
    try {
      while (held.size() < 5) held.push_back(session.run(inputs));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      said = error.what();
    }
    EXPECT_GE(held.size(), 2u) << mesh;
    EXPECT_LE(held.size(), 4u) << mesh << ": each takes 1 MiB";
    EXPECT_NE(said.find("the output 'y'"), std::string::npos) << said;
    held.clear();
    EXPECT_NO_THROW(session.run(inputs)) << "it comes back";
    // Idle memory makes room for another size.
    for (int64_t rows : {600, 300, 700, 100}) EXPECT_NO_THROW(session.run({{"x", test::ramp({rows, 1024})}})) << rows;
  }
}

// Weights are there once, and room for buffers and outputs as often as there may be runs.
TEST(MemoryLimit, counts_runs_that_go_on_at_once) {
  constexpr int64_t kWeights = 16 << 20, kOutput = 8 << 20;
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, chain(4, 1024)));
  const Tensors inputs = {{"x0", test::ramp({kOutput / 4096, 1024})}};
  const auto bytes_of = [&](int runs, size_t limit) {
    Session session(model, {}, {}, {}, {.threads_per_rank = 1, .memory_limit = limit, .concurrent_runs = runs});
    std::vector<std::future<Tensors>> made;
    for (int run = 0; run < 2 * runs; ++run) made.push_back(session.run_async(inputs));
    for (auto& each : made) each.wait();
    return session.process_bytes();
  };
  const int64_t one = bytes_of(1, 0), two = bytes_of(2, 0), four = bytes_of(4, 0);
  EXPECT_GE(two - one, kOutput);
  EXPECT_LE(two - one, one - kWeights);
  EXPECT_EQ(four - two, 2 * (two - one));
  EXPECT_NO_THROW(bytes_of(2, static_cast<size_t>(two + two)));
  try {
    Session(model, {}, {}, {}, {.memory_limit = static_cast<size_t>(two - 1), .concurrent_runs = 2}).run(inputs);
    FAIL() << "one run would do";
  } catch (const Error& error) {
    EXPECT_EQ(error.stage(), "memory") << error.what();
  }
}

// Programs for unlike values are one session's: they share weights, and the limit.
TEST(MemoryLimit, is_one_for_all_programs_of_a_session) {
  constexpr int64_t kWeights = 4 << 20, kHidden = 8 << 20, kSlack = 2 << 20;
  test::TemporaryFolder folder;
  const Model model = Model::load(
      test::write_model(folder,
                        "largest (float[batch, 1024] x, int64[1] k) => (float[batch, n] y) <float[1024, 1024] w> {\n"
                        "  h = MatMul (x, w)\n"
                        "  y, at = TopK (h, k)\n"
                        "}"));
  const auto run = [&](Session& session, int64_t k, int64_t rows) {
    return session.run({{"x", test::ramp({rows, 1024})}, {"k", Tensor::of<int64_t>({1}, {k})}}).at("y");
  };
  {
    Session session(model, {}, {}, {}, {.threads_per_rank = 1});
    run(session, 1, 4);
    const int64_t before = anonymous_bytes();
    run(session, 2, 4);
    if (test::kCountsMemory) {
      EXPECT_LT(anonymous_bytes() - before, kWeights / 2) << "each has weights of its own";
    }
  }
  constexpr int64_t kLimit = kWeights + kHidden + kHidden / 2;  // for one of them
  Session session(model, {}, {}, {}, {.threads_per_rank = 1, .memory_limit = static_cast<size_t>(kLimit)});
  const int64_t before = anonymous_bytes();
  const int64_t rows = kHidden / (1024 * 4);
  const Tensor first = run(session, 1, rows);
  for (int64_t k = 2; k <= 5; ++k) run(session, k, rows);
  const Tensor again = run(session, 1, rows);
  EXPECT_EQ(std::memcmp(first.data, again.data, first.bytes), 0);
  if (test::kCountsMemory) {
    EXPECT_LT(anonymous_bytes() - before, kLimit + kSlack) << "each has a limit of its own";
  }
}

// What one holds counts in the limit of the other.
TEST(MemoryLimit, is_one_for_sessions_that_share_states) {
  constexpr int64_t kSlack = 1 << 20;
  test::TemporaryFolder folder;
  const Model model = Model::load(
      test::write_model(folder,
                        "m (float[batch, 1024] x) => (float[batch, 1024] y, float[1024, 1024] \"next.w\") <\n"
                        "  float[1024, 1024] w, float half = {0.5}> {\n"
                        "  y = MatMul (x, w)\n"
                        "  \"next.w\" = Mul (w, half)\n"
                        "}"));
  Plan plan;
  plan.states = {"*=next.*"};
  const Program step = compile(model, Mesh(), plan);
  const Program evaluation = compile(model.with_states({"w"}).with_outputs({"y"}), Mesh());
  const auto bytes_of_both = [&](size_t limit) {
    Session training(step, {.threads_per_rank = 1, .memory_limit = limit});
    training.run({{"x", test::ramp({1, 1024})}});
    Session other(evaluation, {.threads_per_rank = 1, .memory_limit = limit, .share_states = &training});
    other.run({{"x", test::ramp({4096, 1024})}});
    return other.process_bytes();
  };
  const int64_t both = bytes_of_both(0);
  EXPECT_NO_THROW(bytes_of_both(static_cast<size_t>(both + kSlack)));
  EXPECT_THAT(test::error_of([&] { bytes_of_both(static_cast<size_t>(both - kSlack)); }),
              testing::HasSubstr("which is more than the limit of"));
  Session training(step, {.memory_limit = static_cast<size_t>(both)});
  EXPECT_THAT(test::error_of([&] {
                Session(evaluation, {.memory_limit = static_cast<size_t>(both) + 1, .share_states = &training});
              }),
              testing::HasSubstr("the limit is for both"));
}

TEST(KeptPlans, stay_within_their_budget) {
  if (!test::kCountsMemory) GTEST_SKIP() << "the sanitizer has an allocator of its own";
  const Model model = Model::load(std::string(TESSERA_TEST_DATA) + "/models/gpt2/model.onnx");
  const Program program = compile(model, Mesh());
  constexpr int64_t kRuns = 16;
  const auto growth = [&](size_t budget) {
    Session session(program, {.threads_per_rank = 1, .kept_plan_bytes = budget});
    const auto run = [&](int64_t sequence) {
      session.run({{"input_ids", Tensor::zeros(DType::int64, {1, sequence})}});
    };
    for (int64_t sequence = 3 * kRuns; sequence > 2 * kRuns; --sequence) run(sequence);
    const auto before = static_cast<int64_t>(mallinfo2().uordblks);
    for (int64_t sequence = 2 * kRuns; sequence > kRuns; --sequence) run(sequence);
    return static_cast<int64_t>(mallinfo2().uordblks) - before;
  };
  constexpr int64_t kLeastOfPlan = 256 << 10, kSlack = 1 << 20;
  EXPECT_GT(growth(size_t{1} << 30), kRuns * kLeastOfPlan);
  EXPECT_LT(growth(size_t{2} << 20), kSlack) << "as many plans go as come";
}

TEST(MemoryLimit, is_for_plans_too) {
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, chain(4, 512)));
  Plan plan;
  plan.shapes = {{"batch", 4}};
  CompileOptions options;
  options.memory_limit = size_t{2} << 20;
  EXPECT_THROW(compile(model, Mesh(), plan, options), Error);
  EXPECT_NO_THROW(compile(model, Mesh::parse("tp=4"), plan, options));
}

TEST(ResidentRanks, hold_their_shards_only) {
  test::TemporaryFolder folder;
  const Model model = Model::load(test::write_model(folder, R"(
    pair (float[batch, 512] x) => (float[batch, 512] y) <float[512, 1024] up, float[1024, 512] down> {
      hidden = MatMul (x, up)
      y = MatMul (hidden, down)
    })"));
  const Tensors inputs = {{"x", test::ramp({4, 512})}};
  const int64_t whole = Session(compile(model, Mesh())).peak_bytes(inputs)[0];
  constexpr int64_t kActivations = 256 << 10;
  for (int64_t peak : Session(compile(model, Mesh::parse("tp=4"))).peak_bytes(inputs))
    EXPECT_LE(peak, whole / 4 + kActivations);
}

}  // namespace
}  // namespace tessera
