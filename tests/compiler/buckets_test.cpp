// Collectives that start as one: how a rank's plan runs them.
#include "tessera/dialect/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/checked_world.h"
#include "tessera/compiler/compile.h"
#include "tessera/ir/text.h"
#include "tessera/runtime/dry_run.h"
#include "tessera/runtime/executor.h"

namespace tessera::compiler {
namespace {

using testing::HasSubstr;

// Two sums over ranks, even and uneven, or scattered; whole numbers, so that bits are known.
constexpr std::string_view kTwoSums =
    "<ir_version: 10, opset_import: [\"\" : 22]>\n"
    "m (float[5, 6] x, float[6, 7] a, float[6, 3] b) => (float[5, 7] g, float[5, 3] h) {\n"
    "  p = MatMul (x, a)\n"
    "  g = Neg (p)\n"
    "  q = MatMul (x, b)\n"
    "  h = Neg (q)\n"
    "}\n";

Tensor whole_numbers(Dims dims, int seed) {
  std::vector<float> elements(static_cast<size_t>(count_of(dims)));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>((i * 7 + seed) % 11) - 5;
  return Tensor::of(DType::float32, std::move(dims), elements);
}

const std::map<std::string, Tensor> kTwoInputs = {
    {"x", whole_numbers({5, 6}, 1)}, {"a", whole_numbers({6, 7}, 2)}, {"b", whole_numbers({6, 3}, 3)}};

Compiled in_buckets(const std::string& mesh, const std::vector<std::string>& annotations, int64_t bucket_bytes) {
  CompileOptions options;
  options.mesh = Mesh::parse(mesh);
  options.bucket_bytes = bucket_bytes;
  for (const std::string& text : annotations)
    options.annotations.push_back(AnnotationRequest::parse(text, "annotation"));
  return compile(parse_text(kTwoSums), options);
}

std::unique_ptr<runtime::Executor> executor_of(const Compiled& compiled, bool keep_all = false,
                                               const std::string& device = "cpu") {
  runtime::ExecutorOptions options;
  options.threads_per_rank = 1;
  options.keep_all = keep_all;
  options.device = device;
  if (device == "cpu")
    options.connected = std::make_shared<runtime::CheckedWorld>(static_cast<int>(compiled.program->mesh.size()));
  return std::make_unique<runtime::Executor>(compiled.program, options);
}

void expect_same(const std::map<std::string, Tensor>& made, const std::map<std::string, Tensor>& wanted) {
  for (const auto& [name, tensor] : wanted) {
    ASSERT_EQ(made.at(name).dims, tensor.dims) << name;
    EXPECT_EQ(std::memcmp(made.at(name).data, tensor.data, tensor.bytes), 0) << name;
  }
}

struct BucketCase {
  const char* name;
  const char* mesh;
  std::vector<std::string> annotations;
  const char* collective;
};

class BucketsOf : public testing::TestWithParam<BucketCase> {};

TEST_P(BucketsOf, give_the_same_bits) {
  const BucketCase& given = GetParam();
  const Compiled one = in_buckets(given.mesh, given.annotations, 1 << 20),
                 alone = in_buckets(given.mesh, given.annotations, 0);
  const auto buckets = dialect::buckets_of(*one.program->graph);
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].size(), 2u);
  EXPECT_EQ(buckets[0][0]->op_type, given.collective);
  const auto wanted = executor_of(alone)->run(kTwoInputs);
  expect_same(executor_of(one)->run(kTwoInputs), wanted);
  expect_same(executor_of(one, true)->run(kTwoInputs), wanted);
  expect_same(executor_of(one, false, "simulated")->run(kTwoInputs), wanted);
  EXPECT_THAT(runtime::machine_text_of_rank({runtime::RankPrograms::same(one.program), {}, {}}, 0),
              HasSubstr(std::string("start ") + given.collective))
      << "and the next one with it";
}

// A tool may move what computes between them, as the program was before.
TEST_P(BucketsOf, run_where_the_last_stands) {
  const BucketCase& given = GetParam();
  const Compiled one = in_buckets(given.mesh, given.annotations, 1 << 20),
                 alone = in_buckets(given.mesh, given.annotations, 0);
  Graph& graph = *one.program->graph;
  std::vector<Node*> as_before;
  for (const auto& before : alone.program->graph->nodes())
    for (const auto& node : graph.nodes())
      if (node->output()->name == before->output()->name) as_before.push_back(node.get());
  ASSERT_EQ(as_before.size(), graph.nodes().size());
  graph.arrange(as_before);
  EXPECT_EQ(dialect::buckets_of(graph).size(), 1u);
  expect_same(executor_of(one)->run(kTwoInputs), executor_of(alone)->run(kTwoInputs));
}

INSTANTIATE_TEST_SUITE_P(
    All, BucketsOf,
    testing::Values(
        BucketCase{"all_reduce", "dp=2", {"x=[-, dp]", "a=[dp, -]", "b=[dp, -]"}, "AllReduce"},
        BucketCase{"all_reduce_of_three", "dp=3", {"x=[-, dp]", "a=[dp, -]", "b=[dp, -]"}, "AllReduce"},
        BucketCase{"reduce_scatter",
                   "dp=2",
                   {"x=[-, dp]", "a=[dp, -]", "b=[dp, -]", "g=[dp, -]", "h=[dp, -]"},
                   "ReduceScatter"},
        // Blocks of several rows, of which a member has none.
        BucketCase{"reduce_scatter_inside",
                   "dp=4",
                   {"x=[-, dp]", "a=[dp, -]", "b=[dp, -]", "g=[-, dp]", "h=[-, dp]"},
                   "ReduceScatter"},
        BucketCase{"all_gather", "dp=3", {"x=[-, -]", "a=[-, dp]", "b=[-, dp]", "g=[-, -]", "h=[-, -]"}, "AllGather"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::compiler
