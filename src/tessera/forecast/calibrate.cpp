#include "tessera/forecast/calibrate.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/collectives.h"
#include "tessera/compiler/programs.h"
#include "tessera/cost/prices.h"
#include "tessera/forecast/measure.h"
#include "tessera/ir/text.h"
#include "tessera/kernels/versions.h"

namespace tessera::forecast {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

struct ProductShape {
  int64_t rows, depth, columns;
};

// Of small and medium decoders and encoders, and narrow ones that show how rates fall.
std::vector<ProductShape> product_shapes(bool quick) {
  if (quick) return {{1, 768, 3072}, {128, 768, 768}, {128, 768, 3072}, {1024, 1024, 1024}};
  return {{1, 768, 3072},   {1, 2048, 2048},    {8, 768, 3072},    {32, 1024, 1024}, {128, 768, 768},
          {128, 768, 3072}, {128, 3072, 768},   {128, 64, 1024},   {128, 1024, 64},  {512, 768, 2304},
          {512, 2048, 512}, {1024, 1024, 1024}, {2048, 2048, 1024}};
}

// Bytes of a float tensor: from the first-level cache to main memory.
std::vector<int64_t> working_sets(bool quick) {
  if (quick) return {1 << 12, 1 << 18, 1 << 22, 1 << 26};
  return {1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28};
}

// A model of the operators to measure. Each has inputs and outputs of its own.
class Probe {
 public:
  void product(const ProductShape& shape) {
    const std::string y = next();
    inputs_ += fmt::format("{}float[{},{}] x{}", inputs_.empty() ? "" : ", ", shape.rows, shape.depth, y);
    outputs_ += fmt::format("{}float[{},{}] y{}", outputs_.empty() ? "" : ", ", shape.rows, shape.columns, y);
    weights_ += fmt::format("{}float[{},{}] w{}", weights_.empty() ? "" : ", ", shape.depth, shape.columns, y);
    nodes_ += fmt::format("  y{0} = MatMul(x{0}, w{0})\n", y);
  }
  /// `call` with operands "x" and "z" of these extents.
  void operation(const std::string& call, const std::string& dims, const std::string& result, bool two) {
    const std::string y = next();
    inputs_ += fmt::format("{}float[{}] x{}", inputs_.empty() ? "" : ", ", dims, y);
    if (two) inputs_ += fmt::format(", float[{}] z{}", dims, y);
    outputs_ += fmt::format("{}float[{}] y{}", outputs_.empty() ? "" : ", ", result, y);
    nodes_ += fmt::format("  y{} = ", y) +
              fmt::format(fmt::runtime(call), fmt::arg("x", "x" + y), fmt::arg("z", "z" + y)) + "\n";
  }
  std::string text() const {
    return fmt::format("<ir_version: 10, opset_import: [\"\" : 21]>\nprobe ({}) => ({})\n{}{{\n{}}}\n", inputs_,
                       outputs_, weights_.empty() ? "" : "<" + weights_ + ">\n", nodes_);
  }

 private:
  std::string next() { return std::to_string(count_++); }

  int count_ = 0;
  std::string inputs_, outputs_, weights_, nodes_;
};

runtime::DryRun probe_run(const std::string& text, DType dtype, const Mesh& mesh, int threads) {
  const auto source =
      std::make_shared<const compiler::Source>("probe", parse_text(text, "probe"), std::vector<uint64_t>());
  compiler::ProgramOptions options;
  options.mesh = mesh;
  options.compute = dtype;
  options.presets = "none";
  runtime::DryRun run = compiler::compile_program(source, options).dry_run();
  run.options.threads_per_rank = threads;
  run.options.machine_ranks = static_cast<int>(mesh.size());
  return run;
}

std::string products_probe(bool quick) {
  Probe probe;
  for (const ProductShape& shape : product_shapes(quick)) probe.product(shape);
  return probe.text();
}

// A kernel that takes a millisecond or two, for MeasureOptions::kernel.
std::function<void()> kernel_to_run_beside(int threads) {
  Probe probe;
  probe.product({128, 768, 768});
  return kernels_of(probe_run(probe.text(), DType::float32, Mesh(), threads), 0);
}

std::string memory_probe(bool quick) {
  Probe probe;
  for (int64_t bytes : working_sets(quick))
    probe.operation("Add({x}, {z})", std::to_string(bytes / 4), std::to_string(bytes / 4), true);
  for (int64_t rows : quick ? std::vector<int64_t>{128} : std::vector<int64_t>{8, 128, 1024}) {
    const std::string dims = fmt::format("{},1024", rows);
    probe.operation("Softmax({x})", dims, dims, false);
    probe.operation("Gelu({x})", dims, dims, false);
    probe.operation("Mul({x}, {z})", dims, dims, true);
    probe.operation("Transpose({x})", dims, fmt::format("1024,{}", rows), false);
  }
  return probe.text();
}

using Kernels = std::map<std::string, MachineModel::Kernel>;

void add_kernels(MachineModel& machine, const Kernels& found) {
  for (const auto& [signature, kernel] : found) machine.kernels.insert_or_assign(signature, kernel);
}

// Adds the kernels under each of the conditions that calibrate() promises.
void add_kernels(MachineModel& machine, const std::string& text, DType dtype, const MeasureLimits& limits) {
  const int cores = machine.cores;
  std::vector<std::pair<int, int>> conditions = {{cores, 1}};  // threads, ranks
  if (cores > 1) conditions.insert(conditions.end(), {{1, 1}, {1, cores}});
  for (const auto& [threads, ranks] : conditions) {
    const Mesh mesh = ranks == 1 ? Mesh() : Mesh({{"r", ranks}});
    add_kernels(machine, measure_kernels(probe_run(text, dtype, mesh, threads), 0, machine.kernels, limits));
  }
}

// Fits the rate and the extents of half the rate to measured products, by the squares of relative errors: coordinate
// descent with shrinking steps.
MachineModel::Product fit_product(const std::vector<std::pair<ProductShape, double>>& rates) {
  const auto rate_of = [](const MachineModel::Product& product, const ProductShape& shape) {
    const double extents[] = {double(shape.rows), double(shape.columns), double(shape.depth)};
    double rate = product.flops;
    for (size_t i = 0; i < 3; ++i) rate *= extents[i] / (extents[i] + product.half[i]);
    return rate;
  };
  const auto error_of = [&](const MachineModel::Product& product) {
    double sum = 0;
    for (const auto& [shape, rate] : rates) {
      const double error = std::log(rate_of(product, shape) / rate);
      sum += error * error;
    }
    return sum;
  };
  MachineModel::Product best;
  for (const auto& [shape, rate] : rates) best.flops = std::max(best.flops, rate);
  for (double& half : best.half) half = 16;
  for (double step = 2; step > 1.01; step = std::sqrt(step)) {
    for (bool better = true; better;) {
      better = false;
      for (double* parameter : {&best.flops, &best.half[0], &best.half[1], &best.half[2]})
        for (double factor : {step, 1 / step}) {
          MachineModel::Product tried = best;
          const size_t at = static_cast<size_t>(parameter - &best.flops);
          (at == 0 ? tried.flops : tried.half[at - 1]) *= factor;
          if (error_of(tried) < error_of(best) * (1 - 1e-9)) {
            best = tried;
            better = true;
          }
        }
    }
  }
  return best;
}

/// The time that was measured on all cores for a kernel whose signature has this beginning and end.
std::optional<double> seconds_of(const MachineModel& machine, const std::string& begin, const std::string& end) {
  const std::string whole = end + sim::condition(machine.cores, 1);
  for (auto kernel = machine.kernels.lower_bound(begin); kernel != machine.kernels.end(); ++kernel) {
    if (!kernel->first.starts_with(begin)) break;
    if (kernel->first.ends_with(whole) && kernel->second.seconds > 0) return kernel->second.seconds;
  }
  return std::nullopt;
}

void fit_products(MachineModel& machine, DType dtype, bool quick) {
  std::vector<std::pair<ProductShape, double>> rates;
  for (const ProductShape& shape : product_shapes(quick)) {
    const auto seconds = seconds_of(machine, fmt::format("MatMul  {}[{},{}] ", name_of(dtype), shape.rows, shape.depth),
                                    fmt::format(" -> {}[{},{}]", name_of(dtype), shape.rows, shape.columns));
    const double flops = 2.0 * double(shape.rows) * double(shape.depth) * double(shape.columns);
    if (seconds) rates.emplace_back(shape, flops / *seconds);
  }
  if (!rates.empty()) machine.products[dtype] = fit_product(rates);
}

void fit_memory(MachineModel& machine, bool quick) {
  for (int64_t bytes : working_sets(quick)) {
    const auto seconds = seconds_of(machine, "Add ", fmt::format(" -> float32[{}]", bytes / 4));
    if (!seconds) continue;
    if (machine.bandwidths.empty()) machine.kernel = *seconds;
    const double moved = 3.0 * double(bytes);
    machine.bandwidths.push_back({2 * moved, moved / *seconds});
  }
  if (machine.bandwidths.empty()) fail("calibrate", "no kernel's bandwidth could be measured");
  machine.bandwidths.back().up_to = std::numeric_limits<double>::infinity();
}

void add_collectives(MachineModel& machine, const CollectiveTimes& times, const std::string& engine, int64_t ranks) {
  for (CollectiveTime time : times.times) {
    if (time.kind == "copy" || time.kind == "all_reduce by levels") continue;
    if (time.kind == name_of(Collective::send)) time.members = 2;
    const auto same = [&](const MachineModel::Collective& known) {
      return known.engine == engine && known.kind == time.kind && known.members == time.members && known.ranks == ranks;
    };
    auto found = std::find_if(machine.collectives.begin(), machine.collectives.end(), same);
    if (found == machine.collectives.end())
      found = machine.collectives.insert(found, {engine, time.kind, time.members, ranks, {}});
    std::erase_if(found->points, [&](const auto& point) { return point.first == static_cast<double>(time.bytes); });
    found->points.emplace_back(static_cast<double>(time.bytes), time.seconds);
    std::sort(found->points.begin(), found->points.end());
  }
}

}  // namespace

MachineModel describe_machine() {
  MachineModel machine;
  char host[256] = "this machine";
  gethostname(host, sizeof host - 1);
  machine.name = host;
  machine.processor = processor_name();
  machine.instruction_sets = kernels::instruction_sets();
  machine.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  machine.libraries = kernels::library_versions();
  machine.date = today();
  machine.memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  machine.progress = MachineModel::Progress::at_wait;
  return machine;
}

bool is_this_machine(const MachineModel& machine) {
  const MachineModel here = describe_machine();
  return machine.processor == here.processor && machine.instruction_sets == here.instruction_sets &&
         machine.cores == here.cores;
}

MachineModel calibrate(bool quick, const Begins& begins) {
  MachineModel machine = describe_machine();
  const MeasureLimits limits{.seconds = quick ? 0.4 : 2.0, .most_series = 2};
  begins("kernels that move data");
  add_kernels(machine, memory_probe(quick), DType::float32, limits);
  fit_memory(machine, quick);
  for (DType dtype : {DType::float32, DType::bfloat16}) {
    begins(fmt::format("products of {}", name_of(dtype)));
    add_kernels(machine, products_probe(quick), dtype, limits);
    fit_products(machine, dtype, quick);
  }
  const Mesh mesh({{"r", std::clamp(machine.cores, 2, 4)}});
  MeasureOptions options;
  options.seconds = quick ? 0.01 : 0.05;
  options.most = quick ? int64_t{4} << 20 : int64_t{64} << 20;
  options.kinds = {"all_reduce", "all_gather", "reduce_scatter"};
  options.writes = true;
  options.begins = begins;
  options.kernel = [] { return kernel_to_run_beside(1); };
  const CollectiveTimes times = measure_collectives(mesh, options);
  if (mesh.size() <= machine.cores)
    machine.overlaps["threads"] = {times.slows_computation, times.slowed_by_computation};
  add_collectives(machine, times, "threads", mesh.size());
  for (const LinkFit& fit : times.fits)
    if (fit.level.bandwidth > 0) machine.links = {{"threads", 0, fit.level.alpha, fit.level.bandwidth}};
  return machine;
}

bool measure_missing(const runtime::DryRun& run, const sim::PredictOptions& options,
                     const std::shared_ptr<Connection>& connection, MachineModel& machine, const Begins& begins) {
  const Mesh& mesh = run.programs->mesh();
  sim::PredictOptions with = options;
  with.machine = &machine;
  // Before measuring, since all ranks must find the same list.
  std::vector<sim::UsedCollective> used;
  if (mesh.size() > 1) used = sim::predict(run, with).collectives;
  bool any = false;
  if (!connection || connection->launch().rank == 0) {
    begins("kernels of the program");
    Kernels known = machine.kernels;
    for (int rank : sim::classes_of(*run.programs, run.symbols, {}).first) {
      const Kernels found = measure_kernels(run, rank, known);
      any = any || !found.empty();
      add_kernels(machine, found);
      for (auto [signature, kernel] : found) {
        kernel.uncertain = false;  // once is enough for this command
        known.insert_or_assign(signature, kernel);
      }
    }
  }
  if (connection) connection->from_all(0);  // no rank waits in a collective while kernels are measured
  MeasureOptions measured;
  double most = 0;
  const auto needs = [&](std::string_view kind, double bytes) {
    if (std::find(measured.kinds.begin(), measured.kinds.end(), kind) == measured.kinds.end())
      measured.kinds.emplace_back(kind);
    most = std::max(most, bytes);
  };
  for (const sim::UsedCollective& each : used) {
    const auto traits = std::find_if(collectives().begin(), collectives().end(),
                                     [&](const CollectiveTraits& known) { return known.name == each.kind; });
    const bool is_like_permute = traits->message && !each.outside;  // as sim::transfer_of() has it
    if (!each.measured) needs(is_like_permute ? name_of(Collective::permute) : each.kind, each.bytes);
    // The messages of rings, by which a later compilation may replace a collective.
    if (cost::moves_in_background(options.engine) && !traits->message &&
        !cost::measured_time(machine, options.engine, Collective::permute, each.members, mesh.size(), each.bytes))
      needs(name_of(Collective::permute), each.bytes / 2);
  }
  const int64_t together = run.options.machine_ranks > 0 ? run.options.machine_ranks : mesh.size();
  const bool needs_overlap = !used.empty() && together <= machine.cores && !machine.overlaps.contains(options.engine);
  if (measured.kinds.empty() && !needs_overlap) return any;
  if (measured.kinds.empty()) measured.kinds = {std::string(name_of(Collective::barrier))};
  if (needs_overlap)
    measured.kernel = [threads = runtime::threads_of_rank(*run.programs, run.options)] {
      return kernel_to_run_beside(threads);
    };
  measured.seconds = 0.03;
  measured.writes = true;
  measured.most = int64_t{1} << 20;
  while (static_cast<double>(measured.most) < most && measured.most < int64_t{256} << 20) measured.most *= 4;
  measured.begins = begins;
  measured.connection = connection;
  const CollectiveTimes times = measure_collectives(mesh, measured);
  add_collectives(machine, times, options.engine, mesh.size());
  if (needs_overlap) machine.overlaps[options.engine] = {times.slows_computation, times.slowed_by_computation};
  return true;
}

}  // namespace tessera::forecast
