// Which collectives start as one, and in what order the program then runs.
#include "tessera/passes/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/dialect/buckets.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;
using testing::ElementsAre;
using testing::IsEmpty;

// The program's nodes, "AllReduce:0" for one of bucket 0.
std::vector<std::string> bucketed(spmd::Program program, std::optional<int64_t> bytes = 4096,
                                  const Topology& topology = {}) {
  std::vector<std::string> notes;
  Context context{topology, notes, {}, bytes};
  buckets(program, context);
  program.graph->verify("buckets");
  dialect::buckets_of(*program.graph);
  std::vector<std::string> names;
  for (const auto& node : program.graph->nodes()) {
    const auto* bucket = node->get<int64_t>(spmd::kBucketAttribute);
    names.push_back(node->op_type + (bucket ? ":" + std::to_string(*bucket) : ""));
  }
  return names;
}

// Products over a split dimension, of which nothing else depends: as gradients of replicas.
constexpr std::string_view kGradients =
    "m (float[8, 64] x, float[64, 8] a, float[64, 8] b) => (float[8, 8] g, float[8, 8] h) {\n"
    "  p = MatMul (x, a)\n"
    "  g = Neg (p)\n"
    "  q = MatMul (x, b)\n"
    "  h = Neg (q)\n"
    "}\n";
const Compiled::Orders kOverReplicas = {{"x", "[-, dp]"}, {"a", "[dp, -]"}, {"b", "[dp, -]"}};

TEST(Buckets, join_reductions_that_no_communication_waits_for) {
  EXPECT_THAT(bucketed(Compiled(kGradients, "dp=2", kOverReplicas).program()),
              ElementsAre("MatMul", "MatMul", "AllReduce:0", "AllReduce:0", "Neg", "Neg"));
}

TEST(Buckets, hold_no_more_bytes_than_they_may) {
  const Compiled split(kGradients, "dp=2", kOverReplicas);
  EXPECT_EQ(bucketed(split.program(), 512)[2], "AllReduce:0") << "two of 256 bytes";
  for (const int64_t bytes : {0, 255, 511})
    EXPECT_THAT(bucketed(split.program(), bytes),
                ElementsAre("MatMul", "AllReduce", "Neg", "MatMul", "AllReduce", "Neg"))
        << bytes;
}

TEST(Buckets, are_as_large_as_the_links_latency_asks) {
  const Compiled split(kGradients, "dp=2", kOverReplicas);
  const auto of = [&](double alpha) {
    return bucketed(split.program(), std::nullopt, {{{"dp", {{2, alpha, 1e9, ""}}}}, "test"})[2];
  };
  EXPECT_EQ(of(1e-6), "AllReduce:0") << "4,000 bytes in four latencies";
  EXPECT_EQ(of(1e-7), "Neg") << "400 bytes";
}

TEST(Buckets, leave_alone_what_depends_on_another) {
  EXPECT_THAT(bucketed(Compiled("m (float[8, 64] x, float[64, 64] a, float[64, 64] b) => (float[8, 64] y) {\n"
                                "  p = MatMul (x, a)\n"
                                "  q = Relu (p)\n"
                                "  y = MatMul (q, b)\n"
                                "}\n",
                                "tp=2", {{"x", "[-, tp]"}, {"a", "[tp, -]"}, {"q", "[-, -]"}, {"b", "[tp, -]"}})
                           .program()),
              testing::Not(testing::Contains(testing::HasSubstr(":"))));
}

TEST(Buckets, join_only_one_kind_group_and_type) {
  EXPECT_THAT(
      bucketed(Compiled(kGradients, "dp=2,tp=2", {{"x", "[-, dp]"}, {"a", "[dp, -]"}, {"b", "[tp, -]"}}).program()),
      testing::Not(testing::Contains(testing::HasSubstr(":"))))
      << "over dp, and over tp";
}

// A chain whose every reduction the next product needs, as in a backward pass over split weights, and reductions that
// only outputs need: those may wait for one another, but hold up none of the chain.
constexpr std::string_view kChain =
    "m (float[64, 64] x, float[64, 64] a, float[64, 64] b, float[64, 64] c, float[64, 8] v) =>\n"
    "  (float[64, 64] y, float[64, 8] r, float[64, 8] s) {\n"
    "  p = MatMul (x, a)\n"
    "  m = MatMul (x, v)\n"
    "  r = Neg (m)\n"
    "  q = Tanh (p)\n"
    "  n = MatMul (q, v)\n"
    "  s = Exp (n)\n"
    "  t = MatMul (q, b)\n"
    "  u = Tanh (t)\n"
    "  y = MatMul (u, c)\n"
    "}\n";

TEST(Buckets, hold_up_no_communication_that_another_needs_soon) {
  const Compiled split(kChain, "tp=2",
                       {{"x", "[-, tp]"},
                        {"a", "[tp, -]"},
                        {"b", "[tp, -]"},
                        {"c", "[tp, -]"},
                        {"v", "[tp, -]"},
                        {"q", "[-, -]"},
                        {"u", "[-, -]"}});
  const std::vector<std::string> given = bucketed(split.program(), 0);
  std::vector<std::string> made = bucketed(split.program(), 4096);
  // r and s, of 2 KiB each, are in one; the chain's have 16 KiB.
  EXPECT_EQ(std::count(made.begin(), made.end(), "AllReduce:0"), 2);
  EXPECT_EQ(std::count(made.begin(), made.end(), "AllReduce"), std::count(given.begin(), given.end(), "AllReduce") - 2);
  // With room for all, p's reduction must not wait for n's, which depends on it; m's may travel with it.
  made = bucketed(split.program(), 1 << 20);
  EXPECT_EQ(std::count(made.begin(), made.end(), "AllReduce:0"), 2);
  EXPECT_LT(std::find(made.begin(), made.end(), "AllReduce:0") - made.begin(),
            std::find(made.begin(), made.end(), "Tanh") - made.begin());
}

// No communication depends on the first sum, but a product does, and it would wait for the second.
TEST(Buckets, hold_up_no_product) {
  const Compiled split(
      "m (float[64, 64] x, float[64, 8] v, float[64, 8] w, float[256, 64] k) => (float[256, 8] y, float[64, 8] s) {\n"
      "  p = MatMul (x, v)\n"
      "  q = Tanh (p)\n"
      "  y = MatMul (k, q)\n"
      "  n = MatMul (x, w)\n"
      "  s = Exp (n)\n"
      "}\n",
      "tp=2",
      {{"x", "[-, tp]"}, {"v", "[tp, -]"}, {"w", "[tp, -]"}, {"k", "[-, -]"}, {"q", "[-, -]"}, {"s", "[-, -]"}});
  EXPECT_THAT(bucketed(split.program(), 4096),
              ElementsAre("MatMul", "AllReduce", "Tanh", "MatMul", "MatMul", "AllReduce", "Exp"));
  EXPECT_THAT(bucketed(split.program(), 1 << 20), testing::Contains("AllReduce:0").Times(2)) << "little, beside that";
}

// Stored parameters are ready at once, so the second gather comes forward, and nothing is computed later for it.
TEST(Buckets, fetch_stored_parameters_ahead) {
  const Compiled stored(
      "m (float[8, 16] x) => (float[8, 16] z) <float[16, 16] a, float[16, 16] b> {\n"
      "  p = MatMul (x, a)\n"
      "  q = Relu (p)\n"
      "  r = MatMul (q, b)\n"
      "  z = Relu (r)\n"
      "}\n",
      "dp=2", {{"x", "[-, -]"}, {"p", "[-, -]"}, {"z", "[-, -]"}});
  spmd::Program program = stored.program();
  // As `--store '*=[dp, -]'` leaves them.
  Graph& graph = *program.graph;
  for (Node* node : {graph.nodes()[0].get(), graph.nodes()[2].get()}) {
    Value* shard = graph.add_value("shard", ValueKind::state, {DType::float32, Shape{8, 16}});
    Node* gather = graph.add_node("AllGather", {shard}, {"whole"}, spmd::kCommDomain);
    gather->set("axes", std::vector<std::string>{"dp"});
    gather->set("dim", int64_t{0});
    gather->outputs[0]->type = {DType::float32, Shape{16, 16}};
    graph.set_input(node, 1, gather->outputs[0]);
  }
  std::vector<Node*> order;
  for (size_t n : {4, 0, 1, 5, 2, 3}) order.push_back(graph.nodes()[n].get());
  graph.arrange(order);
  EXPECT_THAT(bucketed(std::move(program)),
              ElementsAre("AllGather:0", "AllGather:0", "MatMul", "Relu", "MatMul", "Relu"));
}

}  // namespace
}  // namespace tessera::passes
