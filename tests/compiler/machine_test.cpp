// Machine programs of whole models: what every reader of them may rely on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tessera/compiler/compile.h"
#include "tessera/onnx/import.h"
#include "tessera/ops/op.h"
#include "tessera/runtime/rank_plan.h"

namespace tessera::compiler {
namespace {

using bind::Enqueued;
using bind::kComputing;
using bind::Location;
using bind::MachineProgram;
using bind::Phase;
using testing::HasSubstr;

class Machines : public testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {
 protected:
  void SetUp() override {
    const auto& [model, mesh, device] = GetParam();
    CompileOptions options;
    options.mesh = Mesh::parse(mesh);
    const auto path = std::filesystem::path(TESSERA_TEST_DATA) / "models" / model / "model.onnx";
    const OnnxModel source = import_model(path);
    compiled_ = compile(source, options);
    const spmd::Hints sizes = symbol_values(source, compiled_.model->graph.get(), {}, nullptr);
    symbols_ = {sizes.begin(), sizes.end()};
    programs_ = runtime::RankPrograms::same(compiled_.program);
    state_.emplace(programs_->mesh(), 0, 1, states_, device::make_device(device));
    plan_.emplace(*state_, programs_, symbols_, bind::Options{});
  }

  const MachineProgram& machine() const { return plan_->machine(); }

  Compiled compiled_;
  Symbols symbols_;
  std::shared_ptr<const runtime::RankPrograms> programs_;
  runtime::RankStates states_;
  std::optional<runtime::RankState> state_;
  std::optional<runtime::RankPlan> plan_;
};

TEST_P(Machines, keep_buffers_apart_that_are_needed_together) {
  const auto& buffers = machine().buffers;
  for (size_t a = 0; a < buffers.size(); ++a) {
    EXPECT_LE(machine().offsets[a] + buffers[a].bytes, machine().arena_bytes);
    for (size_t b = 0; b < a; ++b) {
      const bool together = buffers[a].first <= buffers[b].last && buffers[b].first <= buffers[a].last;
      const bool apart = machine().offsets[a] + buffers[a].bytes <= machine().offsets[b] ||
                         machine().offsets[b] + buffers[b].bytes <= machine().offsets[a];
      EXPECT_TRUE(!together || apart || buffers[a].bytes == 0 || buffers[b].bytes == 0) << a << " and " << b;
    }
  }
}

TEST_P(Machines, use_buffers_within_their_lives) {
  const auto within = [&](const Location& place, int action) {
    if (place.where != Location::Where::arena) return true;
    const bind::Lifetime& life = machine().buffers[place.index];
    return life.first <= action && action <= life.last;
  };
  for (size_t a = 0; a < machine().actions->size(); ++a) {
    const bind::Step& step = *machine().steps[(*machine().actions)[a].action.task];
    for (const auto* places : {&step.inputs, &step.outputs})
      for (const Location& place : *places)
        EXPECT_TRUE(within(place, static_cast<int>(a))) << step.info.op << " '" << step.info.name << "' at " << a;
  }
  const int end = static_cast<int>(machine().actions->size());
  for (const bind::HostCopy& copy : machine().outputs) EXPECT_TRUE(within(copy.place, end));
}

// Every step runs, or starts and ends, once; a wait comes after its start.
TEST_P(Machines, do_every_step_once) {
  std::vector<int> done(machine().steps.size());
  for (const Enqueued& enqueued : *machine().actions) {
    int& count = done[enqueued.action.task];
    EXPECT_EQ(count, enqueued.action.phase == Phase::wait ? 1 : 0);
    count += enqueued.action.phase == Phase::run ? 2 : 1;
  }
  for (int count : done) EXPECT_EQ(count, 2);
}

// On an asynchronous device, each nearest axis has a queue, what a communication needs has ended when it starts, and
// who needs it waits for it.
TEST_P(Machines, order_the_queues) {
  const bool asynchronous = std::get<2>(GetParam()) == "simulated";
  const auto& actions = *machine().actions;
  int computed = -1;
  for (int a = 0; a < static_cast<int>(actions.size()); ++a) {
    const auto& [action, queue, after, signals] = actions[a];
    if (!asynchronous) {
      EXPECT_EQ(queue, kComputing);
      EXPECT_EQ(after, -1);
      EXPECT_FALSE(signals);
      continue;
    }
    EXPECT_EQ(queue != kComputing, action.phase == Phase::start);
    if (action.phase == Phase::start) {
      EXPECT_EQ(machine().queues[queue], machine().steps[action.task]->info.axes.back());
      EXPECT_EQ(after, computed);  // -1: the inputs and the arena
    }
    if (action.phase == Phase::wait) {
      ASSERT_GE(after, 0);
      EXPECT_EQ(actions[after].action.task, action.task);
    }
    if (after >= 0) {
      EXPECT_LT(after, a);
      EXPECT_NE(actions[after].queue, queue);
      EXPECT_TRUE(actions[after].signals);
    }
    if (queue == kComputing) computed = a;
  }
}

// A device with memory of its own gets no address of the caller.
TEST_P(Machines, leave_the_callers_memory_to_the_host) {
  if (std::get<2>(GetParam()) == "cpu") return;
  for (const auto& step : machine().steps)
    for (const auto* places : {&step->inputs, &step->outputs})
      for (const Location& place : *places)
        EXPECT_TRUE(place.where != Location::Where::input && place.where != Location::Where::output);
  EXPECT_EQ(machine().inputs.size(), compiled_.program->inputs.size());
  EXPECT_EQ(machine().outputs.size(), compiled_.program->outputs.size());
}

// The costs are those that the program's nodes state.
TEST_P(Machines, cost_what_their_nodes_cost) {
  double flops = 0;
  for (const auto& node : programs_->of(0).graph->nodes())
    flops += spmd::hinted(bind_rank(ops::flops_of(*node), programs_->mesh(), state_->coordinates()), symbols_);
  EXPECT_DOUBLE_EQ(machine().total().flops, flops);
  for (const auto& step : machine().steps) {
    EXPECT_EQ(step->info.communication, step->communication != nullptr);
    EXPECT_EQ(step->cost.received > 0, step->info.communication && step->info.members > 1) << step->info.name;
  }
}

// A step comes after those that it needs.
TEST_P(Machines, state_what_steps_need) {
  std::vector<int> ended(machine().steps.size(), -1);
  for (int a = 0; a < static_cast<int>(machine().actions->size()); ++a) {
    const auto& [task, phase] = (*machine().actions)[a].action;
    if (phase != Phase::wait) {
      for (int other : (*machine().needs)[task]) EXPECT_GE(ended[other], 0) << task << " needs " << other;
    }
    if (phase != Phase::start) ended[task] = a;
  }
}

TEST_P(Machines, print_themselves) {
  const std::string text = plan_->text();
  EXPECT_THAT(text, HasSubstr("arena " + std::to_string(machine().arena_bytes) + " bytes"));
  for (const auto& step : machine().steps)
    EXPECT_THAT(text, HasSubstr(step->info.op + (step->info.axes.empty() ? " '" : "<")));
  EXPECT_EQ(text, runtime::RankPlan(*state_, programs_, symbols_, {}).text());
}

INSTANTIATE_TEST_SUITE_P(Models, Machines,
                         testing::Combine(testing::Values("gpt2", "llama-cache", "resnet"),
                                          testing::Values("tp=1", "tp=2", "dp=2,tp=2", "tp=3"),
                                          testing::Values("cpu", "simulated")),
                         [](const auto& info) {
                           std::string name =
                               std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" + std::get<2>(info.param);
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace tessera::compiler
