// An operator of our own gives what its body of ordinary operators gives.
#include <gtest/gtest.h>

#include "property/cases.h"
#include "property/trial.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/passes.h"

namespace tessera::property {
namespace {

runtime::Executor::Tensors results_of(const Subject& subject, int threads) {
  runtime::ExecutorOptions options;
  options.threads_per_rank = threads;
  return runtime::Executor(compile(subject, {}, {}), options).run(subject.inputs);
}

const Node& only_node(const Subject& subject) {
  return *subject.graph->nodes().front();
}

bool has_body(const Subject& subject) {
  const ops::OpDef* op = ops::find_op(only_node(subject).op_type, only_node(subject).domain);
  return op && op->body;
}

TEST(Bodies, give_what_the_operators_give) {
  std::set<std::string> compared;
  for (const Subject& subject : all_cases()) {
    if (!has_body(subject)) continue;
    SCOPED_TRACE(subject.name);
    Subject spelled = subject;
    spelled.graph = std::shared_ptr<Graph>(subject.graph->clone());
    rewrite::spell_out(*spelled.graph);
    for (const auto& node : spelled.graph->nodes()) EXPECT_EQ(node->domain, "");
    const auto expected = results_of(spelled, 1);
    for (int threads : {1, 3})
      for (const auto& [name, actual] : results_of(subject, threads))
        EXPECT_EQ(difference(actual, expected.at(name), subject.bound), "") << name << ", " << threads << " threads";
    compared.insert(only_node(subject).op_type);
  }
  for (const ops::OpDef* op : ops::all_ops())
    EXPECT_TRUE(!op->body || compared.contains(std::string(op->type))) << op->type << " has no case";
}

}  // namespace
}  // namespace tessera::property
