// Executors that each host some ranks of one world, as processes do: here each in a thread of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "spmd/compiled.h"
#include "tessera/base/error.h"
#include "tessera/runtime/executor.h"
#include "tessera/runtime/output_parts.h"

namespace tessera::runtime {
namespace {

using spmd::Compiled;
using testing::ElementsAre;
using testing::HasSubstr;
using Tensors = Executor::Tensors;

/// One process' view of a world.
class Share : public comm::World {
 public:
  Share(std::shared_ptr<comm::World> world, std::vector<int> here) : world_(std::move(world)), here_(std::move(here)) {}
  int size() const override { return world_->size(); }
  std::vector<int> local_ranks() const override { return here_; }
  std::unique_ptr<comm::Communicator> join(int rank, std::span<const int> members) override {
    EXPECT_THAT(here_, testing::Contains(rank));
    return world_->join(rank, members);
  }
  void abort(int rank, std::string_view message, ErrorKind kind) override { world_->abort(rank, message, kind); }

 private:
  std::shared_ptr<comm::World> world_;
  std::vector<int> here_;
};

/// Runs `body` with an executor for each list of ranks, at once; what each threw.
std::vector<std::string> in_processes(std::string_view model, std::string_view mesh, const Compiled::Orders& orders,
                                      const std::vector<std::vector<int>>& ranks,
                                      const std::function<void(Executor&, size_t process)>& body,
                                      bool keep_all = false) {
  auto program = std::make_shared<spmd::Program>(Compiled(model, mesh, orders).program());
  std::shared_ptr<comm::World> world = comm::make_local_world(static_cast<int>(program->mesh.size()));
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t p = 0; p < ranks.size(); ++p)
    threads.emplace_back([&, p] {
      try {
        ExecutorOptions options;
        options.threads_per_rank = 1;
        options.keep_all = keep_all;
        options.connected = std::make_shared<Share>(world, ranks[p]);
        Executor executor(program, options);
        body(executor, p);
      } catch (const std::exception& error) {
        errors[p] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<float> floats_of(const Tensor& tensor) {
  auto values = tensor.as<float>();
  return {values.begin(), values.end()};
}

// u is split by rows, v by columns (not one piece of memory), s over nothing.
constexpr std::string_view kTwoProcessesModel =
    "m (float[b, 4] x) => (float[b, 4] u, float[b, 4] v, float[b, 4] s) {\n"
    "  u = Neg (x)\n"
    "  v = Add (x, x)\n"
    "  s = CumSum (x, {0})\n"
    "}\n";
const Compiled::Orders kOrders{{"u", "[dp, -]"}, {"v", "[-, dp]"}, {"s", "[-, -]"}};

Tensors counted(int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows) * 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return {{"x", Tensor::of(DType::float32, {rows, 4}, values)}};
}

TEST(TwoProcesses, bring_whole_outputs_to_the_one_of_rank_0) {
  using Ranks = std::vector<std::vector<int>>;
  for (const Ranks& ranks : {Ranks{{0}, {1}, {2}}, Ranks{{0, 2}, {1}}, Ranks{{1, 2}, {0}}}) {
    auto errors = in_processes(kTwoProcessesModel, "dp=3", kOrders, ranks, [&](Executor& executor, size_t process) {
      for (int64_t rows : {2, 5, 0, 5}) {
        const Tensors given = counted(rows), outputs = executor.run(given);
        if (ranks[process].front() != 0) {
          EXPECT_TRUE(outputs.empty());
          continue;
        }
        std::vector<float> sum(4);
        const std::vector<float> x = floats_of(given.at("x")), u = floats_of(outputs.at("u")),
                                 v = floats_of(outputs.at("v")), s = floats_of(outputs.at("s"));
        ASSERT_EQ(u.size(), x.size());
        for (size_t i = 0; i < x.size(); ++i) {
          EXPECT_EQ(u[i], -x[i]);
          EXPECT_EQ(v[i], 2 * x[i]);
          EXPECT_EQ(s[i], sum[i % 4] += x[i]);
        }
      }
    });
    EXPECT_THAT(errors, testing::Each(""));
  }
}

TEST(TwoProcesses, parts_are_known_before_the_run) {
  const auto programs =
      RankPrograms::same(std::make_shared<spmd::Program>(Compiled(kTwoProcessesModel, "dp=3", kOrders).program()));
  const std::vector<int> here = {0, 2};
  const auto parts = [&](const std::string& value, int64_t rows) {
    return received_parts(*programs, here, value, {{"b", rows}});
  };
  ASSERT_EQ(parts("u", 6).size(), 1U);
  EXPECT_EQ(parts("u", 6)[0].rank, 1);
  EXPECT_EQ(parts("u", 6)[0].bytes(), 2 * 4 * sizeof(float));
  EXPECT_TRUE(parts("u", 6)[0].is_one_piece());
  ASSERT_EQ(parts("v", 6).size(), 1U);
  EXPECT_FALSE(parts("v", 6)[0].is_one_piece());
  EXPECT_THAT(parts("s", 6), testing::IsEmpty()) << "rank 0 has it whole";
  EXPECT_THAT(parts("u", 0), testing::IsEmpty());
  EXPECT_THAT(received_parts(*programs, std::vector<int>{0, 1, 2}, "u", {{"b", 6}}), testing::IsEmpty());
}

TEST(TwoProcesses, bring_whole_intermediate_values_too) {
  auto errors = in_processes(
      "m (float[b, 4] x) => (float[b, 4] y) { t = Neg (x)\n y = Exp (t) }", "dp=2", {{"t", "[-, dp]"}}, {{0}, {1}},
      [](Executor& executor, size_t process) {
        executor.run(counted(1));
        int seen = 0;
        for (const Executor::Kept& kept : executor.kept())
          if (kept.name == "t" && process == 0) {
            ++seen;
            EXPECT_THAT(floats_of(kept.value), ElementsAre(-0.0F, -1, -2, -3));
          }
        EXPECT_EQ(seen, process == 0 ? 1 : 0);
      },
      true);
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(TwoProcesses, all_know_what_each_rank_needs) {
  std::vector<std::vector<size_t>> bytes(2);
  auto errors =
      in_processes(kTwoProcessesModel, "dp=3", kOrders, {{0, 2}, {1}}, [&](Executor& executor, size_t process) {
        bytes[process] = executor.peak_bytes({{"b", 1}});
      });
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_EQ(bytes[0].size(), 3u);
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(TwoProcesses, refuse_inputs_alike_and_go_on) {
  auto errors = in_processes(kTwoProcessesModel, "dp=2", kOrders, {{0}, {1}}, [&](Executor& executor, size_t) {
    EXPECT_THROW(executor.run({}), Error);
    executor.run(counted(2));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

// Rows of a table, each looked up by one rank.
TEST(TwoProcesses, end_together_when_one_rank_fails) {
  constexpr std::string_view lookup =
      "m (float[3, 2] table, int64[b] rows) => (float[b, 2] y) { y = Gather (table, rows) }";
  auto errors =
      in_processes(lookup, "x=2", {{"rows", "[x]"}, {"y", "[-, -]"}}, {{0}, {1}}, [](Executor& executor, size_t) {
        executor.run({{"table", Tensor::zeros(DType::float32, {3, 2})},
                      {"rows", Tensor::of<int64_t>(DType::int64, {2}, {0, 9})}});
      });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 ended the run"));
  EXPECT_THAT(errors[1], testing::Not(HasSubstr("ended the run")));
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("Gather"));
}

TEST(TwoProcesses, that_are_given_other_sizes_or_inputs_are_told_so) {
  constexpr std::string_view sum = "m (float[b, 2] x) => (float[b] y) { y = ReduceSum <keepdims = 0> (x, {1}) }";
  auto errors_of = [&](const std::array<Tensor, 2>& given) {
    return in_processes(sum, "x=2", {{"x", "[-, x]"}, {"y", "[-]"}}, {{0}, {1}},
                        [&](Executor& executor, size_t process) {
                          executor.run({{"x", given[process]}});
                        });
  };
  const Tensor rows = Tensor::of<float>(DType::float32, {2, 2}, {1, 2, 3, 4});
  const testing::Matcher<std::string> fix = HasSubstr("give all ranks the same");
  EXPECT_THAT(
      errors_of({rows, Tensor::zeros(DType::float32, {3, 2})}),
      testing::Each(testing::AllOf(HasSubstr("rank 1 was given inputs with the hash "),
                                   HasSubstr(", b=3, but rank 0 inputs with the hash "), HasSubstr(", b=2;"), fix)));
  EXPECT_THAT(errors_of({rows, Tensor::zeros(DType::float32, {2, 2})}),
              testing::Each(testing::AllOf(HasSubstr(", b=2, but rank 0 inputs"), fix)));
  EXPECT_THAT(errors_of({rows, rows}), testing::Each(""));
}

// Words that are cut before they differ still identify the rank and its data.
TEST(TwoProcesses, that_are_given_many_sizes_are_told_which_has_others) {
  constexpr int kDims = 60;
  std::string inputs, sum;
  for (int d = 0; d < kDims; ++d) {
    inputs += fmt::format("{}float[symbol_{:02}] x{}", d ? ", " : "", d, d);
    sum += fmt::format("s{} = ReduceSum <keepdims = 0> (x{}, {{0}})\n", d, d);
    sum += fmt::format("t{} = {}\n", d, d ? fmt::format("Add (t{}, s{})", d - 1, d) : "Neg (s0)");
  }
  const std::string model = fmt::format("m ({}) => (float[] y) {{ {} y = Neg (t{}) }}", inputs, sum, kDims - 1);
  const auto errors =
      in_processes(model, "x=3", {{"x0", "[-]"}, {"y", "[]"}}, {{0, 1}, {2}}, [&](Executor& executor, size_t process) {
        Tensors given;
        for (int d = 0; d < kDims; ++d)
          given[fmt::format("x{}", d)] =
              Tensor::zeros(DType::float32, {d + 1 < kDims ? 2 : static_cast<int64_t>(2 + process)});
        executor.run(given);
      });
  EXPECT_THAT(errors, testing::Each(testing::ContainsRegex(
                          "rank 2 was given inputs with the hash [0-9a-f]+, symbol_00=2, .* but rank 0 inputs with")));
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], testing::Not(HasSubstr("symbol_59")));
}

TEST(TwoProcesses, must_be_as_many_as_the_mesh_has_ranks) {
  auto program = std::make_shared<spmd::Program>(Compiled(kTwoProcessesModel, "dp=3", kOrders).program());
  ExecutorOptions options;
  options.connected = comm::make_local_world(2);
  try {
    Executor executor(program, options);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "the mesh dp=3 of 3 ranks is given, but 2 processes were started; name a mesh of 2 ranks, or start 3"));
  }
}

}  // namespace
}  // namespace tessera::runtime
