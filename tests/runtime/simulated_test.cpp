// What an accelerator makes different: copies, queues and memory that the host may not touch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "spmd/compiled.h"
#include "tessera/base/error.h"
#include "tessera/runtime/executor.h"

namespace tessera::runtime {
namespace {

using spmd::Compiled;
using testing::HasSubstr;
using Tensors = Executor::Tensors;

Executor on_device(const std::string& device, std::string_view text, std::string_view mesh,
                   const Compiled::Orders& orders = {}, ExecutorOptions options = {}) {
  options.device = device;
  options.threads_per_rank = 1;
  return {std::make_shared<spmd::Program>(Compiled(text, mesh, orders).program()), options};
}

Tensor counted(Dims dims) {
  std::vector<float> values(static_cast<size_t>(count_of(dims)));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::of(DType::float32, std::move(dims), values);
}

void expect_like_cpu(std::string_view text, std::string_view mesh, const Compiled::Orders& orders,
                     const std::vector<Tensors>& inputs) {
  Executor cpu = on_device("cpu", text, mesh, orders), simulated = on_device("simulated", text, mesh, orders);
  for (const Tensors& given : inputs) {
    const Tensors want = cpu.run(given), got = simulated.run(given);
    for (const auto& [name, tensor] : want) {
      ASSERT_EQ(got.at(name).dims, tensor.dims) << name;
      if (tensor.bytes == 0) continue;
      EXPECT_EQ(std::memcmp(got.at(name).data, tensor.data, tensor.bytes), 0) << name;
    }
  }
}

// y = `collective` (x) over tp=2, where the rank of tp=1 has a whole tensor [4, 5] and both have columns of it.
std::shared_ptr<spmd::Program> with_root(const std::string& collective) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("tp=2");
  program->graph = std::make_unique<Graph>();
  Graph& graph = *program->graph;
  const TensorType whole{DType::float32, Shape{4, 5}},
      columns{DType::float32, Shape{4, Expr(3) - Expr::axis_index("tp")}};
  const bool gathers = collective == "Gather";
  Value* x = graph.add_input("x", gathers ? columns : whole);
  Node* node = graph.add_node(collective, {x}, {"y"}, spmd::kCommDomain);
  node->set("axes", std::vector<std::string>{"tp"});
  node->set("dim", int64_t{1});
  node->set("root", int64_t{1});
  Value* y = node->outputs[0];
  y->type = gathers ? whole : columns;
  graph.outputs = {y};
  program->inputs = {{"x", x}};
  program->outputs = {{"y", y}};
  const Sharding split = parse_sharding("[-, tp]", *whole.shape, program->mesh, "columns");
  Sharding at_root = Sharding::replicated(*whole.shape);
  at_root.at.push_back({AxisRef::whole(program->mesh.axes()[0]), 1});
  program->placements[x] = {"x", whole, gathers ? split : at_root};
  program->placements[y] = {"y", whole, gathers ? at_root : split};
  return program;
}

// The device's communicator takes contiguous blocks only.
TEST(SimulatedDevice, gathers_and_scatters_columns_of_one_rank) {
  for (const char* collective : {"Gather", "Scatter"}) {
    const auto program = with_root(collective);
    ExecutorOptions options;
    options.device = "simulated";
    options.threads_per_rank = 1;
    for (int run = 0; run < 2; ++run) {
      const Tensor x = counted({4, 5}), y = Executor(program, options).run({{"x", x}}).at("y");
      ASSERT_EQ(y.dims, x.dims);
      EXPECT_EQ(std::memcmp(y.data, x.data, x.bytes), 0) << collective;
    }
  }
}

// The gather is the first step, and runs on a queue of its own: it must not begin before the input is there.
TEST(SimulatedDevice, starts_communications_when_the_inputs_are_there) {
  constexpr std::string_view kGathers =
      "m (float[2048, 2048] x) => (float[2048, 2048] y) {\n"
      "  y = Transpose <perm = [1, 0]> (x)\n"
      "}\n";
  for (const char* split : {"[x, -]", "[-, x]"})
    expect_like_cpu(kGathers, "x=2", {{"x", split}, {"y", "[-, -]"}}, {{{"x", counted({2048, 2048})}}});
}

TEST(SimulatedDevice, takes_empty_tensors_and_goes_from_size_to_size) {
  constexpr std::string_view kViews =
      "m (float[b, 6] x) => (float[b, 2] s, float[b, 4] t) {\n"
      "  l, r = Split <axis = 1> (x, sizes)\n"
      "  s = Relu (l)\n"
      "  t = Relu (r)\n"
      "}\n";
  std::string text(kViews);
  text.replace(text.find("{\n"), 2, "<int64[2] sizes = {2, 4}> {\n");
  std::vector<Tensors> inputs;
  for (int64_t rows : {0, 3, 0, 7, 1}) inputs.push_back({{"x", counted({rows, 6})}});
  expect_like_cpu(text, "", {}, inputs);
  expect_like_cpu(text, "x=2", {{"x", "[x, -]"}}, inputs);
}

TEST(SimulatedDevice, notes_times_in_order) {
  constexpr std::string_view kSums =
      "m (float[b, 4] x) => (float[b, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {\n"
      "  p = MatMul (x, w)\n"
      "  y = Relu (p)\n"
      "}\n";
  ExecutorOptions options;
  options.profile = true;
  Executor run = on_device("simulated", kSums, "x=2", {{"x", "[-, x]"}}, options);
  run.run({{"x", counted({64, 4})}});
  for (const RankTimes& times : run.times()) {
    EXPECT_LE(times.begin, times.inputs);
    RankTimes::Clock::time_point last = times.inputs;
    for (const RankTimes::Done& done : times.done) {
      EXPECT_LE(last, done.end);
      last = done.end;
    }
    EXPECT_LE(last, times.outputs);
  }
}

TEST(SimulatedDevice, counts_the_copies_of_the_host) {
  constexpr std::string_view kColumns =
      "m (float[64, 64] x) => (float[64, 64] y) {\n"
      "  y = Relu (x)\n"
      "}\n";
  const Compiled::Orders columns{{"x", "[-, x]"}, {"y", "[-, x]"}};
  Executor cpu = on_device("cpu", kColumns, "x=2", columns),
           simulated = on_device("simulated", kColumns, "x=2", columns);
  const size_t part = 64 * 32 * sizeof(float);
  EXPECT_GE(simulated.peak_bytes({})[0], cpu.peak_bytes({})[0] + 2 * part);
  ExecutorOptions limited;
  limited.memory_limit = 4 * 64 * 64;
  Executor refused = on_device("simulated", kColumns, "x=2", columns, limited);
  try {
    refused.run({{"x", counted({64, 64})}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("the host's copies of inputs and outputs"));
  }
}

// A weight is on the device once, and the limit counts it once.
TEST(SimulatedDevice, holds_a_weight_once) {
  constexpr std::string_view kScales =
      "m (float[256, 256] x) => (float[256, 256] y) <float[256, 256] w> {\n"
      "  y = Mul (x, w)\n"
      "}\n";
  const size_t whole = 256 * 256 * sizeof(float);
  ExecutorOptions limited;
  limited.memory_limit = 3 * whole + whole / 2;  // x, over which y is made; y for the caller; w
  Executor run = on_device("simulated", kScales, "", {}, limited);
  EXPECT_NO_THROW(run.run({{"x", counted({256, 256})}}));
}

void expect_no_room(std::string_view text, std::string_view capacity, const std::string& message) {
  Executor refused = on_device("simulated:" + std::string(capacity), text, "");
  try {
    refused.run({{"x", counted({256, 256})}});
    FAIL() << capacity;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

// What the caller holds is in the host's memory: 256 KiB each of x and w are on the device, and y is made over x.
TEST(SimulatedDevice, holds_no_more_than_its_capacity) {
  constexpr std::string_view kScales =
      "m (float[256, 256] x) => (float[256, 256] y) <float[256, 256] w> {\n"
      "  y = Mul (x, w)\n"
      "}\n";
  Executor run = on_device("simulated:513K", kScales, "");
  for (int step = 0; step < 2; ++step) EXPECT_NO_THROW(run.run({{"x", counted({256, 256})}}));
  expect_no_room(kScales, "511K", "which is more than the device's memory of 511.0 KiB; the largest of it: ");
  expect_no_room(kScales, "257K", "'x' 256.0 KiB");
  expect_no_room(kScales, "100K", "'y' takes 256.0 KiB, which is more than the device's memory of 100.0 KiB; use ");
  constexpr std::string_view kTwoWeights =
      "m (float[256, 256] x) => (float[256, 256] z) <float[256, 256] v, float[256, 256] w> {\n"
      "  y = Mul (x, v)\n"
      "  z = Mul (y, w)\n"
      "}\n";
  expect_no_room(kTwoWeights, "300K", "with the device's copy of 'w' of 256.0 KiB");
}

// Rank 1 fails; rank 0's device waits for it in a sum.
TEST(SimulatedDevice, ends_when_a_peer_fails) {
  constexpr std::string_view kSums =
      "m (int64[2] i) => (float y) <float[4] w> {\n"
      "  g = Gather (w, i)\n"
      "  y = ReduceSum <keepdims = 0> (g)\n"
      "}\n";
  Executor run = on_device("simulated", kSums, "x=2", {{"i", "[x]"}});
  const auto at = [](int64_t last) { return Tensor::of<int64_t>(DType::int64, {2}, {0, last}); };
  for (int round = 0; round < 2; ++round) {
    try {
      run.run({{"i", at(99)}});
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("99"));
    }
    EXPECT_NO_THROW(run.run({{"i", at(3)}})) << "the next run is as new";
  }
}

// The host has enqueued the whole run by then, and waits.
TEST(SimulatedDevice, ends_a_run_at_its_deadline_or_when_it_is_told_to_stop) {
  std::string chain = "m (float[400, 400] x0) => (float[400, 400] x40) {\n";
  for (int i = 0; i < 40; ++i) chain += fmt::format("  x{} = MatMul (x{}, x0)\n", i + 1, i);
  chain += "}\n";
  const Tensors inputs = {{"x0", Tensor::of(DType::float32, {400, 400}, std::vector<float>(400 * 400, 1e-3F))}};
  for (const char* mesh : {"", "tp=2"}) {
    Executor run =
        on_device("simulated", chain, mesh, *mesh ? Compiled::Orders{{"x0", "[-, tp]"}} : Compiled::Orders{});
    const Tensors expected = run.run(inputs);
    const auto begin = RunLimits::Clock::now();
    run.run(inputs);
    const auto whole = RunLimits::Clock::now() - begin;
    const auto error_of = [&](const RunLimits& limits) -> std::string {
      try {
        run.run(inputs, limits);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::running);
        EXPECT_EQ(error.stage(), RunLimits::kStage) << error.what();
        return error.what();
      }
      return "no error";
    };
    EXPECT_THAT(error_of({.stop = {}, .deadline = RunLimits::Clock::now() + whole / 4}), HasSubstr("deadline")) << mesh;
    std::stop_source stop;
    std::thread other([&] {
      std::this_thread::sleep_for(whole / 4);
      stop.request_stop();
    });
    EXPECT_THAT(error_of({.stop = stop.get_token(), .deadline = {}}), HasSubstr("stopped by its caller")) << mesh;
    other.join();
    const Tensors again = run.run(inputs);
    EXPECT_EQ(std::memcmp(again.at("x40").data, expected.at("x40").data, expected.at("x40").bytes), 0) << mesh;
  }
}

TEST(SimulatedDevice, refuses_strings) {
  constexpr std::string_view kWords = "m (string[b] x) => (string[b] y) {\n  y = Identity (x)\n}\n";
  Executor run = on_device("simulated", kWords, "");
  try {
    run.peak_bytes({{"b", 1}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("elements of type string, which the device 'simulated' cannot hold"));
  }
}

}  // namespace
}  // namespace tessera::runtime
