// Measures the gain from computing while an all-reduce is under way: a program has an all-reduce of MIB MiB beside a
// chain of PRODUCTS products of ROWS×1024 by 1024×1024 matrices, and runs without and with overlap.
//   bench_overlap threads|processes MIB ROWS PRODUCTS          two ranks of this machine
//   mpirun -n RANKS bench_overlap launched MIB ROWS PRODUCTS   or under torchrun's variables, by Gloo
// Each rank has one thread. Prints rank 0's medians of runs that take turns.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tessera/comm/plugin.h"
#include "tessera/runtime/executor.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

constexpr int64_t kWidth = 1024;
constexpr int kRuns = 15;

struct Sizes {
  int64_t elements = 0;  // of the all-reduce
  int64_t rows = 0, products = 0;
};

/// An all-reduce (0 elements: without), and the largest element of the chain's end (0 products: without).
std::shared_ptr<const spmd::Program> program_of(const Sizes& sizes, int ranks) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("x=" + std::to_string(ranks));
  program->graph = std::make_unique<Graph>();
  Graph& graph = *program->graph;
  auto typed = [](Node* node, Shape shape) {
    node->outputs[0]->type = {DType::float32, std::move(shape)};
    return node->outputs[0];
  };
  auto place = [&](Value* value, const Shape& whole, const char* sharding) {
    const TensorType type{DType::float32, whole};
    program->placements[value] = {value->name, type, parse_sharding(sharding, whole, program->mesh, value->name)};
  };
  auto input = [&](const char* name, const Shape& local, const Shape& whole, const char* sharding) {
    Value* value = graph.add_input(name, {DType::float32, local});
    program->inputs.push_back({name, value});
    place(value, whole, sharding);
    return value;
  };
  auto output = [&](Value* value, const char* sharding) {
    graph.outputs.push_back(value);
    program->outputs.push_back({value->name, value});
    place(value, value->shape(), sharding);
  };
  if (sizes.elements > 0) {
    Value* part = input("part", {sizes.elements}, {sizes.elements * ranks}, "[x]");
    Node* node = graph.add_node("AllReduce", {part}, {"sum"}, spmd::kCommDomain);
    node->set("axes", std::vector<std::string>{"x"});
    node->set("reduction", std::string("sum"));
    output(typed(node, {sizes.elements}), "[-]");
  }
  if (sizes.products > 0) {
    const Shape factors{kWidth, kWidth}, rows{sizes.rows, kWidth};
    Value* factor = input("factor", factors, factors, "[-, -]");
    Value* h = input("h", rows, rows, "[-, -]");
    for (int64_t i = 0; i < sizes.products; ++i)
      h = typed(graph.add_node("MatMul", {h, factor}, {"h" + std::to_string(i)}), rows);
    Node* node = graph.add_node("ReduceMax", {h}, {"largest"});
    node->set("keepdims", int64_t{0});
    output(typed(node, {}), "[]");
  }
  return program;
}

class Subject {
 public:
  Subject(const Sizes& sizes, int ranks, const std::shared_ptr<comm::World>& world, bool overlap)
      : executor_(program_of(sizes, ranks), options_of(world, overlap)) {
    if (sizes.elements > 0) inputs_["part"] = Tensor::zeros(DType::float32, {sizes.elements * ranks});
    if (sizes.products > 0) {
      inputs_["factor"] = Tensor::zeros(DType::float32, {kWidth, kWidth});
      inputs_["h"] = Tensor::zeros(DType::float32, {sizes.rows, kWidth});
    }
  }

  void run() {
    const Clock::time_point begin = Clock::now();
    executor_.run(inputs_);
    times_.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  double median() {
    std::sort(times_.begin(), times_.end());
    return times_[times_.size() / 2];
  }

 private:
  static runtime::ExecutorOptions options_of(const std::shared_ptr<comm::World>& world, bool overlap) {
    runtime::ExecutorOptions options;
    options.threads_per_rank = 1;
    options.connected = world;
    options.overlap = overlap;
    return options;
  }
  runtime::Executor executor_;
  runtime::Executor::Tensors inputs_;
  std::vector<double> times_;
};

void measure(const Sizes& sizes, int ranks, const std::shared_ptr<comm::World>& world, bool speaks) {
  Subject sum({sizes.elements, 0, 0}, ranks, world, false), chain({0, sizes.rows, sizes.products}, ranks, world, false);
  Subject at_once(sizes, ranks, world, false), overlapped(sizes, ranks, world, true);
  for (int run = 0; run < kRuns; ++run)
    for (Subject* subject : {&sum, &chain, &at_once, &overlapped}) subject->run();
  if (!speaks) return;
  const double before = at_once.median(), after = overlapped.median();
  std::printf("sum alone %.1f ms, products alone %.1f ms, one after the other %.1f ms, overlapped %.1f ms: %.2f\n",
              sum.median(), chain.median(), before, after, before / after);
}

int run(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: bench_overlap threads|processes|launched MIB ROWS PRODUCTS\n");
    return 2;
  }
  const std::string engine = argv[1];
  const Sizes sizes{static_cast<int64_t>(std::atof(argv[2]) * (1 << 18)), std::atol(argv[3]), std::atol(argv[4])};
  if (engine == "threads") {
    measure(sizes, 2, nullptr, true);
  } else if (engine == "processes") {
    const int memory = comm::create_shared_memory(2);
    const pid_t other = fork();
    measure(sizes, 2, comm::make_shared_world(memory, other == 0 ? 1 : 0), other != 0);
    if (other != 0) waitpid(other, nullptr, 0);
  } else {
    const comm::Launched launch = comm::find_launch(comm::Engine::automatic, comm::process_environment());
    const std::shared_ptr<comm::World> world = comm::connect_plugin(launch, {});
    measure(sizes, world->size(), world, world->local_ranks().front() == 0);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_overlap: %s\n", error.what());
    return 3;
  }
}
