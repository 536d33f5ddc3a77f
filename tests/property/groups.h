#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "property/trial.h"
#include "tessera/bind/groups.h"

/// What tests of nodes that one kernel runs together share.
namespace tessera::property {

/// A run whose nodes are grouped, or each by itself unless `together`, and the operators of its steps.
inline runtime::Executor::Tensors run_grouped(const Subject& subject, std::vector<std::string>* steps = nullptr,
                                              int threads = 1, bool together = true) {
  runtime::ExecutorOptions options;
  options.threads_per_rank = threads;
  options.keep_all = !together;
  options.profile = true;
  runtime::Executor executor(compile(subject, {}, {}), options);
  runtime::Executor::Tensors outputs = executor.run(subject.inputs);
  if (steps)
    for (const runtime::StepInfo& step : *executor.times()[0].steps) steps->push_back(step.op);
  return outputs;
}

#ifdef TESSERA_THREAD_SANITIZER
inline constexpr int kTeam = 1;  // libgomp is not instrumented
#else
inline constexpr int kTeam = 3;
#endif

/// The steps of a grouped run, whose results must equal those of an ungrouped run, for any team.
inline std::vector<std::string> steps_of(const Subject& subject) {
  std::vector<std::string> steps;
  const auto actual = run_grouped(subject, &steps), by_team = run_grouped(subject, nullptr, kTeam);
  for (const auto& [name, expected] : run_grouped(subject, nullptr, 1, false)) {
    EXPECT_EQ(difference(actual.at(name), expected, subject.bound), "") << name;
    EXPECT_EQ(difference(by_team.at(name), expected, subject.bound), "") << name << " of a team";
  }
  return steps;
}

/// The groups of the nodes in the order in which they are written.
inline bind::Grouping grouping_of(const Subject& subject) {
  auto desc_of = [&](const Value* value) {
    return value ? kernels::TensorDesc{value->dtype(), subject.dims_of(value)} : kernels::TensorDesc();
  };
  auto ints_of = [](const Value*) { return std::optional<std::vector<int64_t>>(); };
  return bind::group_nodes(*subject.graph, {desc_of, ints_of}, kernels::cpu_library());
}

}  // namespace tessera::property
