// Many runs of many shapes: memory stays, and so do answers. TESSERA_LONG_RUN=N runs N times.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "api/small_model.h"
#include "sample.h"
#include "tessera/compare.h"

namespace tessera {
namespace {

using test::kPair;
using test::ramp;
using test::TemporaryFolder;
using test::write_model;

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t runs_wanted() {
  const char* given = std::getenv("TESSERA_LONG_RUN");
  return given ? std::strtoll(given, nullptr, 10) : test::sample<int64_t>(4000, 10000);
}

// More shapes than an executor keeps plans of, one after the other, so that each run evicts a plan and makes another.
constexpr int64_t kShapes = 24;
constexpr size_t kKeptPlans = 16;
static_assert(kShapes > static_cast<int64_t>(kKeptPlans));

// Runs the session on each shape in turn and compares with its first run on that shape; after a fifth of the runs, the
// resident memory must not grow any more.
void endure(Session& session, int64_t runs, const std::function<Tensors(int64_t)>& inputs) {
  const int64_t most_growth = std::max<int64_t>(4 << 20, runs << 10);
  std::vector<Tensors> first;
  for (int64_t i = 0; i < kShapes; ++i) first.push_back(session.run(inputs(i)));
  int64_t before = 0;
  for (int64_t run = 0; run < runs; ++run) {
    if (run == runs / 5) before = resident_bytes();
    const int64_t i = run % kShapes;
    const Tensors now = session.run(inputs(i));
    for (const Difference& difference : compare(first[static_cast<size_t>(i)], now, {0.0, 0.0}))
      ASSERT_TRUE(difference.pass) << "run " << run << ", " << difference.name;
  }
  const int64_t growth = resident_bytes() - before;
  testing::Test::RecordProperty("growth_bytes", std::to_string(growth));
  EXPECT_LE(test::kCountsMemory ? growth : 0, most_growth) << "after " << runs << " runs";
}

TEST(Endurance, neither_memory_nor_answers_drift) {
  TemporaryFolder folder;
  Session session(compile(Model::load(write_model(folder, kPair)), Mesh::parse("dp=2,tp=2")),
                  {.kept_plans = kKeptPlans});
  endure(session, runs_wanted(), [](int64_t i) { return Tensors{{"x", ramp({1 + i * 7 % kShapes * 5, 8})}}; });
}

TEST(Endurance, nor_do_they_of_a_real_model) {
  const Model model = Model::load(std::string(TESSERA_TEST_DATA) + "/models/gpt2/model.onnx");
  Session session(compile(model, Mesh::parse("dp=2,tp=2")), {.kept_plans = kKeptPlans});
  constexpr int64_t kShare = 25;  // a run takes so many times as long
  endure(session, runs_wanted() / kShare, [](int64_t i) {
    const Dims dims{1 + i % 4, 3 + i};
    std::vector<int64_t> ids(static_cast<size_t>(count_of(dims)));
    for (size_t n = 0; n < ids.size(); ++n) ids[n] = static_cast<int64_t>(n * 7 % 50);
    return Tensors{{"input_ids", Tensor::of(DType::int64, dims, ids)}};
  });
}

TEST(Endurance, two_sessions_at_once_from_several_threads) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, kPair));
  Session by_columns(compile(model, Mesh::parse("tp=2"))), by_batch(compile(model, Mesh::parse("dp=3")));
  constexpr int64_t kThreads = 4;
  std::vector<Tensors> expected;
  for (int64_t i = 0; i < kThreads; ++i) expected.push_back(by_columns.run({{"x", ramp({i + 2, 8})}}));
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 25; ++repeat) {
        Session& session = (repeat + i) % 2 ? by_columns : by_batch;
        Tensors actual = session.run({{"x", ramp({i + 2, 8})}});
        wrong[static_cast<size_t>(i)] += !compare("y", expected[static_cast<size_t>(i)].at("y"), actual.at("y")).pass;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int64_t i = 0; i < kThreads; ++i) EXPECT_EQ(wrong[static_cast<size_t>(i)], 0) << "thread " << i;
}

}  // namespace
}  // namespace tessera
