// The dialect, the proof, the passes and the run time read a communication node in one way, and refuse it with one
// error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/damaged_collectives.h"
#include "tessera/dialect/schema.h"
#include "tessera/proof/prove.h"
#include "tessera/proof/statement.h"
#include "tessera/runtime/executor.h"

namespace tessera::proof {
namespace {

using testing::HasSubstr;

std::shared_ptr<spmd::Program> program_of(const spmd::DamagedCollective& damaged) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("tp=2");
  program->graph = std::make_unique<Graph>();
  Node* node = damaged.node_in(*program->graph);
  Value* y = node->outputs[0];
  program->graph->outputs = {y};
  program->outputs = {{"y", y}};
  for (Value* x : program->graph->inputs) program->inputs.push_back({"x", x});
  for (const auto& [name, value] : {std::pair("x", program->graph->inputs.front()), std::pair("y", y)})
    program->placements[value] = {name, value->type, Sharding::replicated(value->shape())};
  return program;
}

TEST(Readers, refuse_damage_with_one_error) {
  for (const spmd::DamagedCollective& damaged : spmd::damaged_collectives()) {
    SCOPED_TRACE(damaged.what);
    const auto program = program_of(damaged);
    const Node& node = *program->graph->nodes().front();
    EXPECT_THAT(spmd::refusal_of([&] { dialect::check_node(node, program->mesh); }), HasSubstr(damaged.error));
    EXPECT_THAT(spmd::refusal_of([&] { communications_of(*program); }), HasSubstr(damaged.error));
    const Report report = prove(*runtime::RankPrograms::same(program));
    ASSERT_FALSE(report.good());
    EXPECT_THAT(report.findings.front().message, HasSubstr(damaged.error));
    EXPECT_THAT(spmd::refusal_of([&] {
                  runtime::Executor(program, {}).run({{"x", Tensor::zeros(DType::float32, {4, 4})}});
                }),
                HasSubstr(damaged.error));
  }
}

}  // namespace
}  // namespace tessera::proof
