#include "tessera/runtime/executor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "spmd/compiled.h"
#include "tessera/base/error.h"
#include "tessera/runtime/dry_run.h"
#include "tessera/runtime/rank_team.h"

namespace tessera::runtime {
namespace {

using spmd::Compiled;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Tensors = Executor::Tensors;

// y = relu(x·w + x), the rows of x split.
constexpr std::string_view kModel =
    "m (float[b, 2] x) => (float[b, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {\n"
    "  p = MatMul (x, w)\n"
    "  s = Add (p, x)\n"
    "  y = Relu (s)\n"
    "}\n";

// Rows of a table, each looked up by one rank; the result is gathered.
constexpr std::string_view kLookup =
    "m (float[3, 2] table, int64[b] rows) => (float[b, 2] y) {\n"
    "  y = Gather (table, rows)\n"
    "}\n";

std::shared_ptr<const spmd::Program> program_of(std::string_view text, std::string_view mesh,
                                                const Compiled::Orders& orders) {
  return std::make_shared<spmd::Program>(Compiled(text, mesh, orders).program());
}

ExecutorOptions one_thread(ExecutorOptions options = {}) {
  options.threads_per_rank = 1;
  return options;
}

Executor executor(std::string_view text, std::string_view mesh, const Compiled::Orders& orders = {},
                  const ExecutorOptions& options = {}) {
  return {program_of(text, mesh, orders), one_thread(options)};
}

// Layers with a reduction each.
std::string deep(int layers) {
  std::string nodes;
  for (int layer = 0; layer < layers; ++layer)
    nodes += fmt::format("  p{0} = MatMul (v{0}, w)\n  v{1} = Sin (p{0})\n", layer, layer + 1);
  return fmt::format(
      "m (float[b, 4] v0) => (float[b, 4] y) <float[4, 4] w = {{2, 0, 1, 0, 0, 1, 0, 3, 1, 1, 1, 1, 0, 2, 0, 1}}> {{\n"
      "{}  y = Neg (v{})\n}}\n",
      nodes, layers);
}

Tensor floats(Dims dims, const std::vector<float>& values) {
  return Tensor::of(DType::float32, std::move(dims), values);
}

std::vector<float> result(const Tensors& outputs) {
  auto values = outputs.at("y").as<float>();
  return {values.begin(), values.end()};
}

std::string error_of(Executor& run, const Tensors& inputs, ErrorKind kind = ErrorKind::user) {
  try {
    run.run(inputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

TEST(Executor, GivesWholeOutputsOfWholeInputs) {
  for (const char* mesh : {"", "dp=2", "dp=5"}) {
    Executor run = executor(kModel, mesh, *mesh ? Compiled::Orders{{"x", "[dp, -]"}} : Compiled::Orders{});
    EXPECT_THAT(result(run.run({{"x", floats({3, 2}, {1, 0, 0, 1, -1, -1})}})), ElementsAre(2, 2, 3, 5, 0, 0));
  }
}

TEST(Executor, TakesOtherShapesFromRunToRun) {
  Executor run = executor(kModel, "dp=2", {{"x", "[dp, -]"}});
  EXPECT_THAT(result(run.run({{"x", floats({1, 2}, {1, 0})}})), ElementsAre(2, 2));
  EXPECT_THAT(result(run.run({{"x", floats({2, 2}, {1, 0, 0, 1})}})), ElementsAre(2, 2, 3, 5));
  EXPECT_THAT(result(run.run({{"x", floats({0, 2}, {})}})), ElementsAre());
  EXPECT_THAT(result(run.run({{"x", floats({1, 2}, {0, 1})}})), ElementsAre(3, 5));
}

TEST(Executor, RefusesInputsThatAreNotTheModels) {
  Executor run = executor(kModel, "dp=2", {{"x", "[dp, -]"}});
  Tensor good = floats({1, 2}, {1, 0});
  EXPECT_THAT(error_of(run, {}), HasSubstr("input 'x' (float32 [b, 2]) is missing"));
  EXPECT_THAT(error_of(run, {{"x", good}, {"z", good}}), HasSubstr("no input 'z'; its inputs are: x"));
  EXPECT_THAT(error_of(run, {{"x", Tensor::zeros(DType::int64, {1, 2})}}),
              HasSubstr("input 'x' has dtype int64, but the model needs float32"));
  EXPECT_THAT(error_of(run, {{"x", floats({2}, {1, 0})}}), HasSubstr("input 'x' has 1 dimension"));
  EXPECT_THAT(error_of(run, {{"x", floats({1, 3}, {1, 0, 0})}}),
              HasSubstr("dimension 1 has extent 3, but the model needs 2"));
  EXPECT_THAT(result(run.run({{"x", good}})), ElementsAre(2, 2)) << "a refused run leaves nothing behind";
}

TEST(Executor, RefusesASymbolWithTwoValues) {
  Executor run = executor("m (float[b] x, float[b] z) => (float[b] y) { y = Add (x, z) }", "dp=2", {{"x", "[dp]"}});
  EXPECT_THAT(error_of(run, {{"x", floats({2}, {1, 2})}, {"z", floats({3}, {1, 2, 3})}}),
              AllOf(HasSubstr("(b) has extent 3, but 'x' dimension 0 has made it 2"),
                    HasSubstr("give the symbol of one of them another name in it")));
}

// What exporters write of dimensions that must be multiples, or have one element more.
TEST(Executor, SolvesExtentsForSymbols) {
  Executor run =
      executor(R"(m (float["2*b"] x, float["b + c"] z) => (float["2*b"] y) { y = Relu (x) })", "dp=2", {{"x", "[dp]"}});
  EXPECT_THAT(result(run.run({{"x", floats({6}, {1, 2, 3, 4, 5, 6})}, {"z", floats({3}, {1, 2, 3})}})),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(
      error_of(run, {{"x", floats({3}, {1, 2, 3})}, {"z", floats({3}, {1, 2, 3})}}),
      HasSubstr("input 'x': dimension 0 has extent 3, but the model needs 2*b, which no whole b from 0 on gives"));
  EXPECT_THAT(error_of(run, {{"x", floats({8}, {1, 2, 3, 4, 5, 6, 7, 8})}, {"z", floats({3}, {1, 2, 3})}}),
              HasSubstr("input 'z': dimension 0 has extent 3, but the model needs b + c, which no whole c from 0 on "
                        "gives; 'x' dimension 0 says b = 4"));
  Executor half = executor(R"(m (float["b//2"] x) => (float["b//2"] y) { y = Relu (x) })", "dp=2", {{"x", "[dp]"}});
  EXPECT_THAT(error_of(half, {{"x", floats({3}, {1, 2, 3})}}),
              HasSubstr("which does not determine b; replace symbols by numbers"));
  Executor two =
      executor(R"(m (float[b] x, float["2*b"] z) => (float[b] y) { y = Relu (x) })", "dp=2", {{"x", "[dp]"}});
  EXPECT_THAT(error_of(two, {{"x", floats({2}, {1, 2})}, {"z", floats({2}, {1, 2})}}),
              HasSubstr("the model needs 4 (2*b); 'x' dimension 0 says b = 2"));
}

// The others wait for the rank that failed: they must hear of it at once, not at the timeout of a minute.
TEST(Executor, EndsTheRunOnAllRanksWhenOneFails) {
  Executor run = executor(kLookup, "x=4", {{"rows", "[x]"}, {"y", "[-, -]"}});
  Tensor table = floats({3, 2}, {0, 1, 2, 3, 4, 5});
  auto rows = [](std::vector<int64_t> values) { return Tensor::of(DType::int64, {4}, values); };
  for (int again = 0; again < 3; ++again) {
    auto start = std::chrono::steady_clock::now();
    std::string message = error_of(run, {{"table", table}, {"rows", rows({0, 1, 7, 2})}}, ErrorKind::user);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
    EXPECT_THAT(message, HasSubstr("7")) << "the failed rank's own message, not that of one that waited for it";
    EXPECT_THAT(message, HasSubstr("Gather"));
    EXPECT_THAT(result(run.run({{"table", table}, {"rows", rows({0, 1, 2, -1})}})), ElementsAre(0, 1, 2, 3, 4, 5, 4, 5))
        << "the next run starts afresh";
  }
}

// Ranks stop before the same communication, wherever each of them is.
TEST(Executor, KeepsItsPlansWhenLimitsEndARun) {
  const std::string model = deep(400);
  for (const char* mesh : {"", "tp=2", "tp=4"}) {
    Executor run = executor(model, mesh, *mesh ? Compiled::Orders{{"v0", "[-, tp]"}} : Compiled::Orders{});
    const Tensors inputs = {{"v0", floats({2, 4}, {1, 2, 3, 4, -1, -2, -3, -4})}};
    const std::vector<float> expected = result(run.run(inputs));
    auto whole = RunLimits::Clock::duration::max();  // of the run that other work has disturbed least
    for (int again = 0; again < 5; ++again) {
      const auto begin = RunLimits::Clock::now();
      run.run(inputs);
      whole = std::min<RunLimits::Clock::duration>(whole, RunLimits::Clock::now() - begin);
    }
    int stopped = 0;
    for (int part = 1; part <= 40; ++part) {
      try {
        run.run(inputs, {.stop = {}, .deadline = RunLimits::Clock::now() + part * whole / 50});
      } catch (const Error& error) {
        ASSERT_EQ(error.stage(), RunLimits::kStage) << error.what();
        ASSERT_EQ(dynamic_cast<const RankFailure*>(&error), nullptr) << mesh << ": a rank has failed";
        ++stopped;
      }
      ASSERT_EQ(result(run.run(inputs)), expected) << mesh;
    }
    EXPECT_GT(stopped, 5) << mesh;
  }
}

TEST(Executor, QueuesRunsOfSeveralThreads) {
  Executor run = executor(kModel, "dp=2", {{"x", "[dp, -]"}});
  auto repeat = [&](float value, int& wrong) {
    for (int i = 0; i < 50; ++i)
      if (result(run.run({{"x", floats({2, 2}, {value, 0, 0, value})}})) !=
          std::vector<float>{2 * value, 2 * value, 3 * value, 5 * value})
        ++wrong;
  };
  int wrong_a = 0, wrong_b = 0;
  std::thread other([&] { repeat(3, wrong_a); });
  repeat(5, wrong_b);
  other.join();
  EXPECT_EQ(wrong_a, 0);
  EXPECT_EQ(wrong_b, 0);
}

// Two runs at once fail in different ways: each error carries the logs of its own team.
TEST(Executor, TellsOfEachFailureWhatItsOwnRanksDid) {
  ExecutorOptions options;
  options.concurrent_runs = 2;
  Executor run = executor(kLookup, "x=2", {{"rows", "[x]"}, {"y", "[-, -]"}}, options);
  const Tensor table = floats({3, 2}, {0, 1, 2, 3, 4, 5});
  const auto flights_of_failure = [&](std::vector<int64_t> rows) {
    try {
      run.run({{"table", table}, {"rows", Tensor::of(DType::int64, {2}, rows)}});
    } catch (const RankFailure& failure) {
      return failure.flights();
    }
    return std::vector<comm::FlightLog>();
  };
  const auto failed_in = [](const std::vector<comm::FlightLog>& flights, size_t rank) {
    return flights.size() == 2 && flights[rank].step.starts_with("Gather");
  };
  int wrong_a = 0, wrong_b = 0;
  const auto repeat = [&](size_t rank, int& wrong) {
    for (int i = 0; i < 50; ++i) {
      std::vector<int64_t> rows{0, 0};
      rows[rank] = 9;
      const auto flights = flights_of_failure(rows);
      wrong += !failed_in(flights, rank) || failed_in(flights, 1 - rank);
    }
  };
  std::thread other([&] { repeat(0, wrong_a); });
  repeat(1, wrong_b);
  other.join();
  EXPECT_EQ(wrong_a, 0);
  EXPECT_EQ(wrong_b, 0);
}

TEST(Executor, MakesThePlansOfAllRunsThatMayGoOnAtOnce) {
  const auto text = [](const std::string& s) {
    return fmt::format("m (float[b, {}] x, float[b, t] y) => (float[b, t] z) {{\n  z = Add (x, y)\n}}\n", s);
  };
  const Compiled::Orders split{{"x", "[x, -]"}};
  int asked = 0;  // by each team that makes plans
  ExecutorOptions options;
  options.concurrent_runs = 3;
  options.for_sizes = [&, made = RankPrograms::same(program_of(text("1"), "x=2", split))](const Symbols&) {
    ++asked;
    return made;
  };
  Executor run = executor(text("s"), "x=2", split, options);
  for (int time = 0; time < 2; ++time) {
    run.prepare({{"b", 2}, {"s", 1}, {"t", 3}});
    EXPECT_EQ(asked, 3);
  }
}

TEST(RankTeam, SpinsOnlyWhereAllTeamsThatRunAtOnceHaveTheirCores) {
  const RankTeam::Options alone{.threads = 2}, two{.threads = 2, .at_once = 2};
  EXPECT_TRUE(alone.spins(2, 4));
  EXPECT_FALSE(two.spins(2, 4));
  EXPECT_TRUE(two.spins(2, 8));
  EXPECT_FALSE(RankTeam::Options{}.spins(1, 0)) << "how many there are is not known";
  EXPECT_FALSE((RankTeam::Options{.threads = 2, .spin = false}.spins(2, 4)));
}

TEST(Executor, KeepsEveryValueWhenAsked) {
  ExecutorOptions options;
  options.keep_all = true;
  Executor run = executor(kModel, "dp=2", {{"x", "[dp, -]"}}, options);
  run.run({{"x", floats({2, 2}, {1, 0, -1, -1})}});
  std::vector<std::string> names;
  for (const Executor::Kept& kept : run.kept()) {
    names.push_back(kept.name);
    if (kept.name == "p") {
      EXPECT_THAT(kept.value.as<float>(), ElementsAre(1, 2, -4, -6));
    }
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"p", "s", "y"}));
}

TEST(Executor, KnowsItsMemoryBeforeItRuns) {
  Executor run = executor(
      "m (float[b, 2] x) => (float[b, 2] y) {\n"
      "  e = Exp (x)\n"
      "  y = CumSum (e, {0})\n"
      "}\n",
      "dp=2", {{"x", "[-, dp]"}});
  Symbols small{{"b", 2}}, large{{"b", 2000}};
  auto little = run.peak_bytes(small), much = run.peak_bytes(large);
  ASSERT_EQ(little.size(), 2u);
  EXPECT_GE(much[0], 2000 * sizeof(float)) << "a rank holds a column of 2000 numbers between the operators";
  EXPECT_LT(little[0], much[0]);
  const std::shared_ptr<const spmd::Program> program(std::shared_ptr<const void>(), &run.program());  // of `run`
  EXPECT_EQ(planned_rank({RankPrograms::same(program), large, {}}, 1).use.peak, much[1]);
}

// A run's outputs stay unchanged while somebody holds them, also after the executor's end; then their memory is reused.
TEST(Executor, OutputsBelongToWhoeverHoldsThem) {
  const Compiled::Orders orders{{"x", "[dp, -]"}};
  for (const char* mesh : {"", "dp=2"}) {
    auto run = std::make_unique<Executor>(program_of(kModel, mesh, *mesh ? orders : Compiled::Orders{}), one_thread());
    Tensors held = run->run({{"x", floats({2, 2}, {1, 0, 0, 1})}});
    Tensors next = run->run({{"x", floats({2, 2}, {0, 0, 0, 0})}});
    const std::byte* memory = next.at("y").data;
    EXPECT_THAT(result(held), ElementsAre(2, 2, 3, 5));
    next.clear();
    next = run->run({{"x", floats({2, 2}, {1, 1, 1, 1})}});
    EXPECT_EQ(next.at("y").data, memory);
    EXPECT_THAT(result(next), ElementsAre(5, 7, 5, 7));
    run.reset();
    EXPECT_THAT(result(held), ElementsAre(2, 2, 3, 5));
  }
}

// Two outputs of one value, an output that a later node reads, and one that is an input.
TEST(Executor, OutputsMayShareAValue) {
  Executor run = executor(
      "m (float[b, 2] x) => (float[b, 2] r, float[b, 2] n, float[2, b] t, float[b, 2] x) {\n"
      "  r = Relu (x)\n"
      "  n = Neg (r)\n"
      "  t = Reshape (r, {2, -1})\n"
      "}\n",
      "");
  Tensors outputs = run.run({{"x", floats({2, 2}, {1, -2, 3, 4})}});
  auto values = [&](const char* name) {
    auto span = outputs.at(name).as<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  EXPECT_THAT(values("r"), ElementsAre(1, 0, 3, 4));
  EXPECT_THAT(values("n"), ElementsAre(-1, 0, -3, -4));
  EXPECT_THAT(values("t"), ElementsAre(1, 0, 3, 4));
  EXPECT_THAT(values("x"), ElementsAre(1, -2, 3, 4));
}

TEST(Executor, RefusesMoreRanksThanOneProcessShouldHave) {
  EXPECT_THROW(executor(kModel, "dp=257", {{"x", "[dp, -]"}}), Error);
}

TEST(Executor, SaysWhichSymbolsMustBeEqual) {
  constexpr std::string_view model = "m (float[n] a, float[m] b) => (float[n] y) { y = Add (a, b) }";
  const Tensor one = floats({1}, {1}), three = floats({3}, {1, 2, 3});
  Executor alone = executor(model, "");
  EXPECT_THAT(result(alone.run({{"a", three}, {"b", one}})), ElementsAre(2, 3, 4)) << "one element broadcasts";
  for (const Tensor& other : {three, floats({2}, {1, 2})})
    EXPECT_THAT(error_of(alone, {{"a", one}, {"b", other}}),
                AllOf(HasSubstr("Add producing 'y' needs n = m"), HasSubstr("`with_sizes` n=1")))
        << "nobody is there to compile the model for that";
  Executor split = executor(model, "dp=2");
  EXPECT_THAT(error_of(split, {{"a", three}, {"b", one}}), HasSubstr("needs n = m"));
  EXPECT_THAT(error_of(split, {{"a", three}, {"b", floats({2}, {1, 2})}}), HasSubstr("they must be equal"));
}

TEST(Executor, NamesTheModelsOwnSizesWhereOneDependsOnData) {
  Executor run = executor(
      "m (int64 limit, float[n] x) => (int64[many] y, float[n] z) <int64 zero = {0}, int64 one = {1}> {\n"
      "  y = Range (zero, limit, one)\n"
      "  z = Relu (x)\n"
      "}\n",
      "");
  EXPECT_THAT(
      error_of(run, {{"limit", Tensor::of<int64_t>(DType::int64, {}, {3})}, {"x", floats({1}, {1})}}),
      AllOf(HasSubstr("Range producing 'y': the extent 'many' of 'y' depends on data"), HasSubstr("(sizes: n)")));
}

TEST(Executor, SaysWhereWindowsDoNotFit) {
  Executor run = executor("m (float[1, 2, n] x) => (float[1, 2, k] y) { y = MaxPool <kernel_shape = [4]> (x) }", "");
  EXPECT_THAT(result(run.run({{"x", floats({1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})}})), ElementsAre(4, 8));
  EXPECT_THAT(error_of(run, {{"x", floats({1, 2, 3}, {1, 2, 3, 4, 5, 6})}}),
              AllOf(HasSubstr("MaxPool producing 'y'"), HasSubstr("do not fit into the 3 elements of dimension 2")));
  EXPECT_THAT(error_of(run, {{"x", floats({1, 2, 2}, {1, 2, 3, 4})}}),
              AllOf(HasSubstr("MaxPool producing 'y': dimension 2 of 'y' is n - 3 = -1 where n=2")));
}

}  // namespace
}  // namespace tessera::runtime
