// Communications are under way while kernels run: in which order, and whether anybody gets into their way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checked_world.h"
#include "spmd/compiled.h"
#include "tessera/runtime/executor.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::runtime {
namespace {

using spmd::Compiled;
using testing::ElementsAre;
using testing::HasSubstr;

/// A model with one communication over tp=2, beside which q and t are made.
struct Model {
  const char* name;
  const char* communication;
  std::string text;
  Compiled::Orders orders;
};

constexpr std::string_view kBeside =
    "  q = MatMul (z, v)\n"
    "  t = Softmax <axis = 0> (q)\n";

Model model_of(const char* name, const char* communication, std::string_view before, std::string_view after,
               Compiled::Orders orders) {
  std::string text = "m (float[8, 8] x, float[8, 8] w, float[8, 8] z, float[8, 8] v) => (float[8, 8] y) {\n";
  text.append(before).append(kBeside).append(after).append("}\n");
  return {name, communication, std::move(text), std::move(orders)};
}

const Model kSum = model_of("all_reduce", "AllReduce", "  p = MatMul (x, w)\n  r = Relu (p)\n", "  y = Add (r, t)\n",
                            {{"x", "[-, tp]"}, {"w", "[tp, -]"}, {"z", "[-, -]"}});
const Model kGather =
    model_of("all_gather", "AllGather", "  s = Relu (x)\n  r = Softmax <axis = 0> (s)\n", "  y = Add (r, t)\n",
             {{"x", "[tp, -]"}, {"s", "[tp, -]"}, {"r", "[-, -]"}, {"z", "[-, -]"}, {"w", "[-, -]"}});
const Model kExchange =
    model_of("all_to_all", "AllToAll", "  s = Relu (x)\n  r = Softmax <axis = 0> (s)\n", "  y = Add (r, t)\n",
             {{"x", "[tp, -]"}, {"s", "[tp, -]"}, {"r", "[-, tp]"}, {"v", "[-, tp]"}, {"y", "[-, tp]"}});
const Model kScatter =
    model_of("reduce_scatter", "ReduceScatter", "  p = MatMul (x, w)\n  r = Relu (p)\n", "  y = Add (r, t)\n",
             {{"x", "[-, tp]"}, {"w", "[tp, -]"}, {"r", "[-, tp]"}, {"v", "[-, tp]"}, {"y", "[-, tp]"}});

std::shared_ptr<const spmd::Program> program_on_mesh(const Model& model) {
  return std::make_shared<spmd::Program>(Compiled(model.text, "tp=2", model.orders).program());
}

Executor::Tensors inputs() {
  Executor::Tensors tensors;
  float value = 0;
  for (const char* name : {"x", "w", "z", "v"}) {
    std::vector<float> elements(64);
    for (float& element : elements) element = value = value > 3 ? value - 5.5f : value + 0.75f;
    tensors[name] = Tensor::of(DType::float32, {8, 8}, elements);
  }
  return tensors;
}

std::vector<float> y_of(Executor& executor) {
  auto y = executor.run(inputs()).at("y");
  auto elements = y.as<float>();
  return {elements.begin(), elements.end()};
}

ExecutorOptions options_on(const std::shared_ptr<comm::World>& world, bool overlap) {
  ExecutorOptions options;
  options.threads_per_rank = 1;
  options.connected = world;
  options.overlap = overlap;
  options.profile = true;
  return options;
}

/// The steps of rank 0's last run: "MatMul", "start AllReduce", "wait AllReduce".
std::vector<std::string> steps_of(const Executor& executor) {
  std::vector<std::string> steps;
  for (const StepInfo& step : *executor.times()[0].steps)
    steps.push_back((step.started >= 0 ? "wait " : step.communication ? "start " : "") + step.op);
  return steps;
}

class Overlap : public testing::TestWithParam<Model> {};

TEST_P(Overlap, computes_while_the_communication_is_under_way_and_gives_the_same_bits) {
  const Model& model = GetParam();
  auto program = program_on_mesh(model);
  Executor at_once(program, options_on(std::make_shared<CheckedWorld>(2), false));
  Executor overlapped(program, options_on(std::make_shared<CheckedWorld>(2), true));
  const std::vector<float> expected = y_of(at_once);
  const std::string start = std::string("start ") + model.communication,
                    wait = std::string("wait ") + model.communication;
  for (int run = 0; run < 3; ++run) EXPECT_EQ(y_of(overlapped), expected);
  auto steps = steps_of(overlapped);
  const auto begin = std::find(steps.begin(), steps.end(), start), end = std::find(steps.begin(), steps.end(), wait);
  ASSERT_TRUE(begin < end && end < steps.end()) << testing::PrintToString(steps);
  EXPECT_THAT(std::vector<std::string>(begin + 1, end), ElementsAre("MatMul", "Softmax"));
  steps = steps_of(at_once);
  EXPECT_EQ(std::find(steps.begin(), steps.end(), wait) - std::find(steps.begin(), steps.end(), start), 1);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Overlap, testing::Values(kSum, kGather, kExchange, kScatter),
                         [](const auto& info) { return info.param.name; });

// The sum may not be made where the gather, which is under way, reads.
TEST(OverlapMemory, of_an_operand_is_not_taken_over_while_another_communication_reads_it) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("tp=2");
  program->graph = std::make_unique<Graph>();
  Graph& graph = *program->graph;
  const TensorType half{DType::float32, Shape{4}}, whole{DType::float32, Shape{8}};
  auto typed = [](Node* node, const TensorType& type) {
    node->outputs[0]->type = type;
    return node->outputs[0];
  };
  auto communication = [&](const char* op_type, Value* operand, const char* name, const TensorType& type) {
    Node* node = graph.add_node(op_type, {operand}, {name}, spmd::kCommDomain);
    node->attributes = spmd::written({.kind = *collective_of_op(op_type), .axes = {"tp"}, .dim = 0});
    return typed(node, type);
  };
  Value* x = graph.add_input("x", half);
  Value* h = typed(graph.add_node("Relu", {x}, {"h"}), half);
  Value* gathered = communication("AllGather", h, "gathered", whole);
  Value* sum = communication("AllReduce", h, "sum", half);
  Value* y = typed(graph.add_node("Neg", {gathered}, {"y"}), whole);
  Value* t = typed(graph.add_node("Neg", {sum}, {"t"}), half);
  graph.outputs = {y, t};
  program->inputs = {{"x", x}};
  program->outputs = {{"y", y}, {"t", t}};
  program->placements[x] = {"x", whole, parse_sharding("[tp]", *whole.shape, program->mesh, "x")};
  program->placements[y] = {"y", whole, parse_sharding("[-]", *whole.shape, program->mesh, "y")};
  program->placements[t] = {"t", half, parse_sharding("[-]", *half.shape, program->mesh, "t")};
  Executor executor(program, options_on(std::make_shared<CheckedWorld>(2), true));
  const auto outputs = executor.run({{"x", Tensor::of<float>(DType::float32, {8}, {0, 1, 2, 3, 4, 5, 6, 7})}});
  EXPECT_THAT(outputs.at("y").as<float>(), ElementsAre(0, -1, -2, -3, -4, -5, -6, -7));
  EXPECT_THAT(outputs.at("t").as<float>(), ElementsAre(-4, -6, -8, -10));
  EXPECT_THAT(steps_of(executor), ElementsAre("Relu", "start AllGather", "start AllReduce", "wait AllGather", "Neg",
                                              "wait AllReduce", "Neg"));
}

constexpr int kNever = 1000;  // tests

TEST(OverlapProgress, is_asked_for_after_a_kernel_until_the_communication_has_ended) {
  for (const bool by_tests : {true, false}) {
    auto world = std::make_shared<CheckedWorld>(2, 1, by_tests);
    Executor executor(program_on_mesh(kSum), options_on(world, true));
    executor.run(inputs());
    for (int rank = 0; rank < 2; ++rank) {
      // The first are of planning: what a run needs, and what has been loaded.
      std::vector<std::string> expected = {"start errors", "wait errors", "start errors", "wait errors", "start p"};
      if (by_tests) expected.push_back("test p");
      expected.push_back("wait p");
      EXPECT_EQ(world->log(rank), expected) << by_tests << " on rank " << rank;
    }
  }
}

TEST(OverlapProgress, is_asked_for_no_more_than_ten_times_a_millisecond) {
  constexpr int kKernels = 200;
  std::string text =
      "m (float[8, 8] x, float[8, 8] w, float[8, 8] z, float[8, 8] v) => (float[8, 8] y) {\n"
      "  p = MatMul (x, w)\n"
      "  r = Relu (p)\n"
      "  q0 = MatMul (z, v)\n";
  for (int i = 1; i < kKernels; ++i) text += fmt::format("  q{} = MatMul (q{}, v)\n", i, i - 1);
  text += fmt::format("  y = Add (r, q{})\n}}\n", kKernels - 1);
  const Compiled::Orders orders = {{"x", "[-, tp]"}, {"w", "[tp, -]"}, {"z", "[-, -]"}};
  auto program = std::make_shared<spmd::Program>(Compiled(text, "tp=2", orders).program());
  auto world = std::make_shared<CheckedWorld>(2, kNever, true);
  Executor executor(program, options_on(world, true));
  executor.run(inputs());
  const RankTimes times = executor.times().at(0);
  const auto most = (times.outputs - times.begin) / std::chrono::microseconds(100) + 1;
  const std::vector<std::string> log = world->log(0);
  const auto tests = std::count(log.begin(), log.end(), "test p");
  EXPECT_GE(tests, 1);
  EXPECT_LE(tests, most);
}

/// An operator that takes a core tens of milliseconds.
struct LongKernel {
  const char* name;
  const char* inputs;  // declarations
  const char* node;    // makes `q`
  const char* result;  // type of `q`
  std::vector<std::pair<const char*, Dims>> tensors = {};
};

void PrintTo(const LongKernel& kernel, std::ostream* out) {
  *out << kernel.name;
}

class LongKernels : public testing::TestWithParam<LongKernel> {};

// How often a rank was asked to let a sum advance in so many runs in which one long kernel runs beside it.
int64_t tests_in(Executor& executor, const Executor::Tensors& tensors, CheckedWorld& world, int runs) {
  for (int run = 0; run < runs; ++run) executor.run(tensors);
  const std::vector<std::string> log = world.log(1);
  return std::count(log.begin(), log.end(), "test p");
}

// After the kernel there is one more test at most. A busy machine may let no thread run beside a kernel, but not
// always.
void expect_tests_within(const std::string& text, Executor::Tensors tensors) {
  constexpr int kRuns = 10;
  auto program =
      std::make_shared<spmd::Program>(Compiled(text, "tp=2", {{"x", "[-, tp]"}, {"w", "[tp, -]"}}).program());
  for (const char* name : {"x", "w"}) tensors[name] = Tensor::zeros(DType::float32, {8, 8});
  const auto tested = std::make_shared<CheckedWorld>(2, kNever, true),
             other = std::make_shared<CheckedWorld>(2, kNever);
  Executor executor(program, options_on(tested, true)), by_itself(program, options_on(other, true));
  EXPECT_GT(tests_in(executor, tensors, *tested, kRuns), kRuns);
  EXPECT_EQ(tests_in(by_itself, tensors, *other, 1), 0);
}

TEST_P(LongKernels, let_communication_advance_where_it_comes_by_tests) {
  const LongKernel& kernel = GetParam();
  Executor::Tensors tensors;
  for (const auto& [name, dims] : kernel.tensors) tensors[name] = Tensor::zeros(DType::float32, dims);
  expect_tests_within(
      fmt::format("m (float[8, 8] x, float[8, 8] w, {}) => (float[8, 8] y, {} q) {{\n  p = MatMul (x, w)\n  y = Relu "
                  "(p)\n  q = {}\n}}\n",
                  kernel.inputs, kernel.result, kernel.node),
      tensors);
}

// It takes two milliseconds of one core. With as many threads as here, each takes half of one.
TEST(OverlapProgress, is_not_asked_for_during_kernels_that_are_short_on_all_threads) {
  constexpr int kRuns = 10;
  const std::string text =
      "m (float[8, 8] x, float[8, 8] w, float[256, 512] z, float[512, 384] v) => (float[8, 8] y, float[256, 384] q) {\n"
      "  p = MatMul (x, w)\n  y = Relu (p)\n  q = MatMul (z, v)\n}\n";
  auto program =
      std::make_shared<spmd::Program>(Compiled(text, "tp=2", {{"x", "[-, tp]"}, {"w", "[tp, -]"}}).program());
  const auto world = std::make_shared<CheckedWorld>(2, kNever, true);
  ExecutorOptions options = options_on(world, true);
  options.threads_per_rank = 4;
  Executor executor(program, std::move(options));
  const Executor::Tensors tensors = {{"x", Tensor::zeros(DType::float32, {8, 8})},
                                     {"w", Tensor::zeros(DType::float32, {8, 8})},
                                     {"z", Tensor::zeros(DType::float32, {256, 512})},
                                     {"v", Tensor::zeros(DType::float32, {512, 384})}};
  EXPECT_LE(tests_in(executor, tensors, *world, kRuns), kRuns) << "one after each kernel at most";
}

INSTANTIATE_TEST_SUITE_P(
    OfEveryKind, LongKernels,
    testing::Values(
        LongKernel{"product",
                   "float[1024, 1024] a, float[1024, 1024] b",
                   "MatMul (a, b)",
                   "float[1024, 1024]",
                   {{"a", {1024, 1024}}, {"b", {1024, 1024}}}},
        LongKernel{"products",
                   "float[8, 512, 512] a, float[8, 512, 512] b",
                   "MatMul (a, b)",
                   "float[8, 512, 512]",
                   {{"a", {8, 512, 512}}, {"b", {8, 512, 512}}}},
        LongKernel{"convolution",
                   "float[4, 64, 64, 64] a, float[128, 64, 3, 3] b",
                   "Conv <pads = [1, 1, 1, 1]> (a, b)",
                   "float[4, 128, 64, 64]",
                   {{"a", {4, 64, 64, 64}}, {"b", {128, 64, 3, 3}}}},
        LongKernel{"attention",
                   "float[1, 8, 1024, 64] a, float[1, 8, 1024, 64] b, float[1, 8, 1024, 64] c",
                   "Attention (a, b, c)",
                   "float[1, 8, 1024, 64]",
                   {{"a", {1, 8, 1024, 64}}, {"b", {1, 8, 1024, 64}}, {"c", {1, 8, 1024, 64}}}},
        LongKernel{"elements", "float[4096, 4096] a", "Erf (a)", "float[4096, 4096]", {{"a", {4096, 4096}}}},
        LongKernel{"rows", "float[4096, 4096] a", "Softmax <axis = 1> (a)", "float[4096, 4096]", {{"a", {4096, 4096}}}},
        LongKernel{
            "sums", "float[8192, 4096] a", "ReduceSum <keepdims = 1> (a)", "float[1, 1]", {{"a", {8192, 4096}}}}),
    [](const auto& info) { return info.param.name; });

// An update of parameters is a group of element-wise nodes, which one kernel computes.
TEST(OverlapProgress, is_asked_for_within_an_update_of_parameters) {
  Executor::Tensors tensors;
  for (const char* name : {"a", "g", "m0"}) tensors[name] = Tensor::zeros(DType::float32, {2048, 4096});
  expect_tests_within(
      "m (float[8, 8] x, float[8, 8] w, float[2048, 4096] a, float[2048, 4096] g, float[2048, 4096] m0) => (float[8, "
      "8] "
      "y, float[2048, 4096] q) {\n"
      "  p = MatMul (x, w)\n"
      "  y = Relu (p)\n"
      "  m1 = Mul (m0, g)\n"
      "  square = Mul (g, g)\n"
      "  root = Sqrt (square)\n"
      "  above = Add (root, g)\n"
      "  step = Div (m1, above)\n"
      "  q = Sub (a, step)\n"
      "}\n",
      tensors);
}

TEST(OverlapProfile, says_how_much_was_computed_meanwhile) {
  Executor executor(program_on_mesh(kSum), options_on(comm::make_local_world(2), true));
  executor.run(inputs());
  for (const RankTimes& rank : executor.times()) {
    ASSERT_EQ(rank.done.size(), rank.steps->size());
    for (size_t s = 0; s < rank.steps->size(); ++s) {
      EXPECT_EQ(rank.done[s].step, s) << "without loops, each step runs once";
      if (const StepInfo& step = (*rank.steps)[s]; step.started >= 0) {
        EXPECT_EQ((*rank.steps)[step.started].name, step.name);
        EXPECT_LT(step.started, static_cast<int>(s));
        EXPECT_LE(rank.done[step.started].end, rank.done[s].end);
      }
    }
  }
}

// A kernel that fails while a communication is under way ends the run on all ranks, and the next run starts afresh.
TEST(OverlapFailure, of_a_kernel_meanwhile_ends_the_run) {
  const std::string text =
      "m (float[4, 4] x, float[4, 4] w, int64[2] rows) => (float[2, 4] y) {\n"
      "  p = MatMul (x, w)\n"
      "  r = Relu (p)\n"
      "  g = Gather (x, rows)\n"
      "  h = Gather (r, rows)\n"
      "  y = Add (g, h)\n"
      "}\n";
  auto program =
      std::make_shared<spmd::Program>(Compiled(text, "tp=2", {{"x", "[-, tp]"}, {"w", "[tp, -]"}}).program());
  ExecutorOptions options;
  options.threads_per_rank = 1;
  Executor executor(program, options);
  const Tensor ones = Tensor::of<float>(DType::float32, {4, 4}, std::vector<float>(16, 1));
  auto rows = [](int64_t last) { return Tensor::of<int64_t>(DType::int64, {2}, {0, last}); };
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(
        [&] {
          executor.run({{"x", ones}, {"w", ones}, {"rows", rows(9)}});
        },
        testing::ThrowsMessage<Error>(HasSubstr("Gather")));
    auto y = executor.run({{"x", ones}, {"w", ones}, {"rows", rows(3)}}).at("y");
    EXPECT_THAT(y.as<float>(), testing::Each(5));
  }
}

}  // namespace
}  // namespace tessera::runtime
