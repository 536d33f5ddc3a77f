// Send and Recv as nodes of a program: peers are ranks, computed before the run; nobody is a peer, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/runtime/executor.h"

namespace tessera::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Over tp of dp=2,tp=2, each rank sends its two elements of x to `to` and receives y from `from`.
std::shared_ptr<spmd::Program> exchange(const Expr& to, const Expr& from) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("dp=2,tp=2");
  program->graph = std::make_unique<Graph>();
  Graph& graph = *program->graph;
  const TensorType whole{DType::float32, Shape{8}}, local{DType::float32, Shape{2}};
  Value* x = graph.add_input("x", local);
  Node* send = graph.add_node("Send", {x, graph.add_expression("to", {to}, true)}, {}, spmd::kCommDomain);
  Node* recv = graph.add_node("Recv", {graph.add_expression("from", {from}, true), graph.constant_int64({2})}, {"y"},
                              spmd::kCommDomain);
  recv->set("dtype", static_cast<int64_t>(DType::float32));
  for (Node* node : {send, recv}) node->set("axes", std::vector<std::string>{"tp"});
  Value* y = recv->outputs[0];
  y->type = local;
  graph.outputs = {y};
  program->inputs = {{"x", x}};
  program->outputs = {{"y", y}};
  for (const Value* value : {x, y})
    program->placements[value] = {value->name, whole, parse_sharding("[{dp,tp}]", *whole.shape, program->mesh, "x")};
  return program;
}

std::vector<float> run(const std::shared_ptr<spmd::Program>& program) {
  Tensor x = Tensor::of<float>(DType::float32, {8}, {0, 1, 2, 3, 4, 5, 6, 7});
  auto y = Executor(program, {}).run({{"x", x}}).at("y");
  auto elements = y.as<float>();
  return {elements.begin(), elements.end()};
}

const Expr kRank = 2 * Expr::axis_index("dp") + Expr::axis_index("tp");
const Expr kOther = 2 * Expr::axis_index("dp") + 1 - Expr::axis_index("tp");

TEST(Messages, go_to_the_rank_that_is_named) {
  EXPECT_EQ(run(exchange(kOther, kOther)), (std::vector<float>{2, 3, 0, 1, 6, 7, 4, 5}));
}

// The ranks of tp = 0 send to those of tp = 1 only.
TEST(Messages, nobody_gets_nothing_and_gives_zeros) {
  Expr tp = Expr::axis_index("tp");
  EXPECT_EQ(run(exchange((1 - tp) * (kOther + 1) - 1, tp * (kOther + 1) - 1)),
            (std::vector<float>{0, 0, 0, 1, 0, 0, 4, 5}));
}

TEST(Messages, rank_outside_of_the_group_is_named) {
  try {
    run(exchange(0, kOther));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("its peer is rank 0"), HasSubstr("not in the group over tp of rank")));
  }
}

TEST(Messages, peer_that_depends_on_data_is_refused) {
  auto program = exchange(kOther, kOther);
  Graph& graph = *program->graph;
  Node* send = graph.nodes()[0].get();
  Node* data = graph.add_node("Cast", {program->inputs[0].value}, {"data"}, "", send);
  data->set("to", static_cast<int64_t>(DType::int64));
  data->outputs[0]->type = {DType::int64, Shape{2}};
  graph.set_input(send, 1, data->outputs[0]);
  try {
    run(program);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("its peer must be one integer that is known before the run"));
  }
}

}  // namespace
}  // namespace tessera::runtime
