// Concatenations whose parts are computed in place (bind/views.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/runtime/executor.h"
#include "tessera/runtime/sized_rank.h"

namespace tessera::runtime {
namespace {

using testing::Contains;
using testing::Not;

std::shared_ptr<const spmd::Program> joining_program(std::string_view text) {
  return std::make_shared<spmd::Program>(spmd::Compiled(text, "").program());
}

std::vector<std::string> operators_run(std::string_view text) {
  const SizedRank sized(RankPrograms::same(joining_program(text)), 0, {{"b", 2}}, {1, "cpu", {false, true, {}}});
  std::vector<std::string> all;
  for (const auto& step : sized.plan.machine().steps) all.push_back(step->info.op);
  return all;
}

constexpr std::string_view kTwoProducts =
    "m (float[b, 2] x, float[3, 2] z) => (float[n, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {\n"
    "  p = MatMul (x, w)\n  q = MatMul (z, w)\n  y = Concat <axis = 0> (p, q)\n}\n";

TEST(JoinedResults, AreComputedInPlace) {
  EXPECT_THAT(operators_run(kTwoProducts), Not(Contains("Concat")));
}

TEST(JoinedResults, HaveTheirPlacesAtEachSize) {
  Executor executor(joining_program(kTwoProducts), {.threads_per_rank = 1});
  const Tensor z = Tensor::of({3, 2}, std::vector<float>{1, 0, 0, 1, 1, 1});
  for (const int64_t rows : {2, 5, 1, 0}) {
    const Tensor x = Tensor::of({rows, 2}, std::vector<float>(static_cast<size_t>(rows) * 2, 1));
    const Tensor y = executor.run({{"x", x}, {"z", z}}).at("y");
    std::vector<float> expected;
    for (int64_t row = 0; row < rows; ++row) expected.insert(expected.end(), {4, 6});
    expected.insert(expected.end(), {1, 2, 3, 4, 4, 6});
    EXPECT_EQ(std::vector<float>(y.as<float>().begin(), y.as<float>().end()), expected) << rows;
  }
}

TEST(JoinedResults, AreCopiedWhereTheyAreNotContiguous) {
  EXPECT_THAT(operators_run("m (float[3, 2] x, float[3, 2] z) => (float[3, 4] y) <float[2, 2] w = {1, 2, 3, 4}> {\n"
                            "  p = MatMul (x, w)\n  q = MatMul (z, w)\n  y = Concat <axis = 1> (p, q)\n}\n"),
              Contains("Concat"));
}

TEST(JoinedResults, AreCopiedWhereOthersReadThem) {
  EXPECT_THAT(operators_run("m (float[3, 2] x, float[3, 2] z) => (float[6, 2] y, float[3, 2] r) "
                            "<float[2, 2] w = {1, 2, 3, 4}> {\n"
                            "  p = MatMul (x, w)\n  q = MatMul (z, w)\n  y = Concat <axis = 0> (p, q)\n"
                            "  r = MatMul (q, w)\n}\n"),
              Contains("Concat"));
  EXPECT_THAT(operators_run("m (float[3, 2] x) => (float[6, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {\n"
                            "  p = MatMul (x, w)\n  y = Concat <axis = 0> (p, p)\n}\n"),
              Contains("Concat"));
}

}  // namespace
}  // namespace tessera::runtime
