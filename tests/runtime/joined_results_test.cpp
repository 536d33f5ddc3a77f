// Concatenations whose parts are computed in place (bind/views.h).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "spmd/compiled.h"
#include "tessera/bind/groups.h"
#include "tessera/runtime/executor.h"
#include "tessera/runtime/sized_rank.h"

namespace tessera::runtime {
namespace {

using testing::AllOf;
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

std::vector<float> floats(const Tensor& tensor) {
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
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
    EXPECT_EQ(floats(y), expected) << rows;
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

/// A product whose rows a Slice takes, and another one.
std::string sliced(int64_t start, int64_t end, int64_t step) {
  return fmt::format(
      "m (float[b, 2] x, float[1, 2] z) => (float[n, 2] y)\n"
      "<float[2, 2] w = {{1, 2, 3, 4}}, int64[1] start = {{{}}}, int64[1] end = {{{}}}, int64[1] axis = {{0}},\n"
      " int64[1] step = {{{}}}> {{\n"
      "  p = MatMul (x, w)\n  r = Slice (p, start, end, axis, step)\n  q = MatMul (z, w)\n"
      "  y = Concat <axis = 0> (r, q)\n}}\n",
      start, end, step);
}

// With x = [[1, 0], [0, 1], [1, 0], …], and so many rows of it in order or reversed.
void expect_rows(std::string_view text, const std::vector<int64_t>& sizes, size_t most, bool reversed) {
  Executor executor(joining_program(text), {.threads_per_rank = 1});
  for (const int64_t rows : sizes) {
    std::vector<float> x, expected, z{1, 1};
    std::vector<std::vector<float>> made;
    for (int64_t row = 0; row < rows; ++row) {
      const bool odd = row % 2 == 1;
      x.insert(x.end(), {odd ? 0.0F : 1.0F, odd ? 1.0F : 0.0F});
      made.push_back(odd ? std::vector<float>{3, 4} : std::vector<float>{1, 2});
    }
    if (reversed) std::reverse(made.begin(), made.end());
    if (made.size() > most) made.resize(most);
    for (const auto& row : made) expected.insert(expected.end(), row.begin(), row.end());
    expected.insert(expected.end(), {4, 6});
    const Tensors results = executor.run({{"x", Tensor::of({rows, 2}, x)}, {"z", Tensor::of({1, 2}, z)}});
    EXPECT_EQ(floats(results.at("y")), expected) << rows;
  }
}

TEST(JoinedResults, AreReadThroughSlicesOfAllRows) {
  const std::string whole = sliced(0, 100, 1);
  EXPECT_THAT(operators_run(whole), AllOf(Not(Contains("Concat")), Not(Contains("Slice"))));
  expect_rows(whole, {2, 5, 1}, 100, false);
}

TEST(JoinedResults, AreCopiedWhereASliceTurnsThem) {
  const std::string turned = sliced(-1, std::numeric_limits<int64_t>::min(), -1);
  EXPECT_THAT(operators_run(turned), Contains("Concat"));
  expect_rows(turned, {2, 4}, 100, true);
}

// One row is the same in both directions.
TEST(JoinedResults, HaveTheirPlacesAgainIfTheSizesChangeWhatASliceTakes) {
  expect_rows(sliced(-1, std::numeric_limits<int64_t>::min(), -1), {1, 4, 1, 3}, 100, true);
  expect_rows(sliced(0, 3, 1), {2, 5, 3, 2, 4}, 3, false);
}

// How often values are asked for their types while products that a concatenation joins get their places.
size_t asked_for(size_t parts) {
  Graph graph;
  Value* w = graph.add_input("w", {DType::float32, Shape{2, 2}});
  std::vector<Value*> products;
  for (size_t i = 0; i < parts; ++i) {
    Value* x = graph.add_input(fmt::format("x{}", i), {DType::float32, Shape{3, 2}});
    products.push_back(graph.add_node("MatMul", {x, w}, {fmt::format("p{}", i)})->outputs[0]);
    products.back()->type = {DType::float32, Shape{3, 2}};
  }
  Node* joined = graph.add_node("Concat", products, {"y"});
  joined->set("axis", int64_t{0});
  joined->outputs[0]->type = {DType::float32, Shape{static_cast<int64_t>(3 * parts), 2}};
  graph.outputs.push_back(joined->outputs[0]);
  size_t asked = 0;
  const bind::Bound values{[&](const Value* value) -> kernels::TensorDesc {
                             ++asked;
                             const bool is_joined = value == joined->outputs[0], is_weight = value == w;
                             const int64_t rows = is_joined ? static_cast<int64_t>(3 * parts) : is_weight ? 2 : 3;
                             return {DType::float32, {rows, 2}};
                           },
                           [](const Value*) { return std::nullopt; }};
  EXPECT_EQ(bind::group_nodes(graph, values, kernels::cpu_library()).groups.size(), parts);
  return asked;
}

TEST(JoinedResults, AreFoundInTimeThatGrowsWithTheirNumber) {
  EXPECT_LE(asked_for(400), 5 * asked_for(100));
}

}  // namespace
}  // namespace tessera::runtime
