// MPI moves nothing by itself: operations under way advance by tests between kernels.
#include <algorithm>

#include "run_on_mpi.h"
#include "tessera/comm/flight.h"
#include "tessera/runtime/executor.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};
constexpr int64_t kElements = 1 << 20;  // 4 MiB

TEST(MpiProgress, an_all_reduce_ends_by_tests_alone) {
  run_on_mpi(
      2,
      [](World& world, int rank) {
        auto group = world.join(rank, everyone(2));
        const std::vector<float> in(kElements, static_cast<float>(rank + 1));
        std::vector<float> out(kElements);
        const Ticket ticket =
            group->start({.kind = Kind::all_reduce, .in = in.data(), .out = out.data(), .count = kElements});
        const Clock::time_point deadline = Clock::now() + kPatience;
        while (!group->test(ticket) && Clock::now() < deadline) {
        }
        EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float sum) { return sum == 3; }));
        EXPECT_TRUE(group->test(ticket));
        group->wait(ticket);
      },
      kPatience);
}

// Rank 1 reaches the second group only after it received the message that rank 0 began before reaching it.
TEST(MpiProgress, what_is_under_way_goes_on_while_a_rank_joins_a_group) {
  run_on_mpi(
      2,
      [](World& world, int rank) {
        auto group = world.join(rank, everyone(2));
        const std::vector<float> in(kElements, static_cast<float>(rank + 1));
        std::vector<float> out(kElements);
        const Operation sum{.kind = Kind::all_reduce, .in = in.data(), .out = out.data(), .count = kElements};
        const Ticket ticket = group->start(sum);
        if (rank == 1) group->wait(ticket);
        auto other = world.join(rank, everyone(2));
        if (rank == 0) group->wait(ticket);
        EXPECT_EQ(out.back(), 3);
        other->run({.kind = Kind::barrier});
      },
      std::chrono::seconds(10));
}

TEST(MpiProgress, tests_learn_of_another_ranks_failure) {
  run_on_mpi(
      2,
      [](World& world, int rank) {
        auto group = world.join(rank, everyone(2));
        static float element = 0, go = 0;  // outlive the run that fails, as MPI needs them to
        if (rank == 1) {
          group->run({.kind = Kind::recv, .out = &go, .count = 1, .from = 0});
          return world.abort(rank, "the disk is full");
        }
        const Ticket ticket = group->start({.kind = Kind::recv, .out = &element, .count = 1, .from = 1});
        group->run({.kind = Kind::send, .in = &go, .count = 1, .to = 1});
        std::string error;
        const Clock::time_point deadline = Clock::now() + kPatience;
        while (error.empty() && Clock::now() < deadline) try {
            group->test(ticket);
          } catch (const std::exception& thrown) {
            error = thrown.what();
          }
        EXPECT_NE(error.find("rank 1 ended the run: the disk is full"), std::string::npos) << error;
      },
      kPatience);
}

/// An all-reduce of 4 MiB over two ranks, then products that do not need it.
std::shared_ptr<const spmd::Program> sum_beside_products(int products) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("x=2");
  program->graph = std::make_unique<Graph>();
  Graph& graph = *program->graph;
  const TensorType sums{DType::float32, Shape{kElements}}, whole{DType::float32, Shape{2 * kElements}};
  const TensorType matrix{DType::float32, Shape{128, 128}};
  auto place = [&](Value* value, const TensorType& type, const char* sharding) {
    program->placements[value] = {value->name, type, parse_sharding(sharding, *type.shape, program->mesh, value->name)};
  };
  Value* part = graph.add_input("part", sums);
  Value* h = graph.add_input("h", matrix);
  program->inputs = {{"part", part}, {"h", h}};
  place(part, whole, "[x]");
  place(h, matrix, "[-, -]");
  Node* reduce = graph.add_node("AllReduce", {part}, {"sum"}, spmd::kCommDomain);
  reduce->set("axes", std::vector<std::string>{"x"});
  reduce->set("reduction", std::string("sum"));
  Value* sum = reduce->outputs[0];
  sum->type = sums;
  for (int i = 0; i < products; ++i) {
    h = graph.add_node("MatMul", {h, h}, {"h" + std::to_string(i)})->outputs[0];
    h->type = matrix;
  }
  place(sum, sums, "[-]");
  place(h, matrix, "[-, -]");
  graph.outputs = {sum, h};
  program->outputs = {{"sum", sum}, {"h", h}};
  return program;
}

// Takes the best of several runs, since a rank may reach its sum long after the other has computed everything.
TEST(MpiProgress, an_all_reduce_ends_while_kernels_run) {
  run_on_mpi(
      2,
      [](World& world, int rank) {
        runtime::ExecutorOptions options;
        options.threads_per_rank = 1;
        options.connected = {std::shared_ptr<World>(), &world};
        runtime::Executor executor(sum_beside_products(200), options);
        const Tensor part = Tensor::of(DType::float32, {2 * kElements}, std::vector<float>(2 * kElements, 2));
        const Tensor h = Tensor::zeros(DType::float32, {128, 128});
        int ended_before_wait = 0;
        for (int run = 0; run < 20; ++run) {
          const auto outputs = executor.run({{"part", part}, {"h", h}});
          if (rank == 0) {
            const auto sum = outputs.at("sum").as<float>();
            EXPECT_TRUE(std::all_of(sum.begin(), sum.end(), [](float element) { return element == 4; }));
          }
          for (const FlightEntry& entry : log_of(rank, *world.flight(rank)).entries)
            if (entry.kind == Kind::all_reduce && entry.bytes == 4 * kElements)
              ended_before_wait += entry.finished <= entry.waited ? 1 : 0;
        }
        EXPECT_GT(ended_before_wait, 0);
      },
      kPatience);
}

}  // namespace
}  // namespace tessera::comm
