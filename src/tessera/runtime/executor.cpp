#include "tessera/runtime/executor.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "tessera/runtime/executor_impl.h"
#include "tessera/runtime/input_sizes.h"
#include "tessera/runtime/output_parts.h"

namespace tessera::runtime {
namespace {

std::string ranks_text(int64_t ranks) {
  return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

}  // namespace

int threads_of_rank(const RankPrograms& programs, const ExecutorOptions& options) {
#ifdef TESSERA_THREAD_SANITIZER
  return 1;  // libgomp's barriers are not instrumented
#endif
  if (options.threads_per_rank > 0) return options.threads_per_rank;
  const int64_t ranks = options.machine_ranks > 0 ? options.machine_ranks : programs.mesh().size();
  return std::max<int>(1, static_cast<int>(std::thread::hardware_concurrency() / ranks));
}

Executor::Executor(std::shared_ptr<const spmd::Program> program, const ExecutorOptions& options)
    : Executor(RankPrograms::same(std::move(program)), options) {}

Executor::Executor(std::shared_ptr<const RankPrograms> programs, const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
  const int64_t ranks = programs->mesh().size();
  if (const auto& world = options.connected) {
    if (world->size() != ranks)
      fail("run", "{} of {} is given, but {} started; name a mesh of {}, or start {}",
           programs->mesh().axes().empty() ? "no mesh" : "the mesh " + programs->mesh().str(), ranks_text(ranks),
           world->size() == 1 ? "1 process was" : fmt::format("{} processes were", world->size()),
           ranks_text(world->size()), ranks);
    impl_->here = world->local_ranks();
  } else {
    impl_->here.resize(static_cast<size_t>(ranks));
    std::iota(impl_->here.begin(), impl_->here.end(), 0);
  }
  if (impl_->here.size() > kMostRanksHere)
    fail("run",
         "{} ranks as threads of one process are too many (at most {}); use a smaller mesh, or --dry-run to see "
         "the plan of a large one",
         impl_->here.size(), kMostRanksHere);
  impl_->programs = std::move(programs);
  if (options.keep_all) impl_->compute_all_in_steps();
  std::set<std::string> fixed;
  for (const auto& program : impl_->programs->programs)
    for (const Value* state : program->graph->values_of(ValueKind::state)) {
      if (state->changing || program->derived.contains(state)) continue;
      const spmd::Placement& placement = program->placement(state);
      fixed.insert(placement.origin ? placement.origin->name : placement.name);
    }
  const std::string device(device::make_device(options.device)->name());
  impl_->store->admit(impl_->programs->mesh(), impl_->here, device, whole_states(*impl_->programs), fixed);
  impl_->threads = threads_of_rank(*impl_->programs, options);
  for (int rank : impl_->here) {
    impl_->ranks.push_back(std::make_unique<RankState>(impl_->programs->mesh(), rank, impl_->threads, impl_->memory,
                                                       impl_->store->of(rank), device::make_device(options.device),
                                                       impl_->store->weights()));
    impl_->workers.push_back(std::make_unique<Worker>(impl_->threads));
  }
  impl_->connect();
}

Executor::~Executor() {
  const std::lock_guard lock(impl_->store->running);
  impl_->commit();
}

const spmd::Program& Executor::program() const {
  return impl_->programs->of(0);
}
std::vector<RankTimes> Executor::times() const {
  std::lock_guard lock(impl_->running);
  return impl_->times;
}
std::vector<comm::FlightLog> Executor::flights() const {
  std::lock_guard lock(impl_->running);
  return impl_->flights;
}
int Executor::threads_per_rank() const {
  return impl_->threads;
}

Symbols Executor::bind_symbols(const Tensors& inputs) const {
  const spmd::Program& program = this->program();
  for (const auto& given : inputs) {
    const std::string& name = given.first;
    bool known = std::any_of(program.inputs.begin(), program.inputs.end(),
                             [&](const spmd::Port& port) { return port.name == name; });
    if (known) continue;
    std::string names;
    for (const spmd::Port& port : program.inputs) names += (names.empty() ? "" : ", ") + port.name;
    fail("inputs", "the model has no input '{}'; its inputs are: {}", name, names);
  }
  InputSizes sizes;
  for (const spmd::Port& port : program.inputs) {
    const TensorType& type = program.placement(port.value).global;
    auto given = inputs.find(port.name);
    if (given == inputs.end())
      fail("inputs", "input '{}' ({} {}) is missing; give an array of that name", port.name, name_of(type.dtype),
           to_string(*type.shape));
    const Tensor& tensor = given->second;
    if (tensor.dtype != type.dtype)
      fail("inputs",
           "input '{}' has dtype {}, but the model needs {}; give it as that, for example with numpy's astype",
           port.name, name_of(tensor.dtype), name_of(type.dtype));
    if (tensor.dims.size() != type.shape->size())
      fail("inputs", "input '{}' has {} dimensions ({}), but the model needs {}: {}", port.name, tensor.dims.size(),
           fmt::join(tensor.dims, "x"), type.shape->size(), to_string(*type.shape));
    tensor.require_whole(port.name);
    sizes.add(port.name, *type.shape, tensor.dims);
  }
  const Symbols symbols = sizes.solved();
  programs_for(impl_->programs, symbols, impl_->options.for_sizes);
  return symbols;
}

Executor::Tensors Executor::run(const Tensors& inputs, const RunLimits& limits, Tensors wanted) {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->commit();
  Symbols symbols = impl_->alike(inputs, [&] {
    impl_->store->require_whole();
    return bind_symbols(inputs);
  });
  auto& plans = impl_->plan(symbols);
  const RankPrograms& programs = *plans.front()->programs();
  // Ranks of a written program may have values of their own, so it is that of the first rank here.
  const spmd::Program& program = programs.of(impl_->here.front());
  impl_->last = &plans;
  impl_->last_symbols = symbols;
  if (impl_->options.keep_all) impl_->last_inputs = inputs;
  if (impl_->options.profile) impl_->times.resize(impl_->ranks.size());
  std::vector<const void*> given;
  for (const spmd::Port& port : program.inputs) given.push_back(inputs.at(port.name).data);
  const bool is_direct = !impl_->options.connected;  // else other processes may have to reach them
  Tensors outputs = impl_->take_outputs(plans, symbols, wanted, is_direct);
  std::vector<void*> made;
  std::vector<std::string> called;  // outputs, in the ranks' programs
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    made.push_back(outputs.at(program.outputs[i].name).mutable_data());
    called.push_back(programs.output(i).value->name);
  }
  try {
    impl_->on_all(
        [&](size_t n) {
          plans[n]->run(given, made, impl_->options.profile ? &impl_->times[n] : nullptr, limits);
          for (size_t i = 0; i < made.size(); ++i)
            bring_parts(*impl_->ranks[n], programs, symbols, impl_->here, called[i], made[i]);
        },
        {&inputs, &outputs});
  } catch (...) {
    impl_->store->note_failure();
    throw;
  }
  impl_->uncommitted = &plans;
  if (!impl_->options.keep_all) impl_->commit();  // else kept() reads the values before
  if (!impl_->is_whole()) return {};
  if (!is_direct)
    for (auto& [name, output] : wanted) {
      std::memcpy(output.mutable_data(), outputs.at(name).data, output.bytes);
      outputs[name] = output;
    }
  return outputs;
}

std::vector<size_t> Executor::peak_bytes(const Symbols& symbols) {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->commit();
  auto& plans = impl_->plan(symbols);
  std::vector<int64_t> bytes(impl_->programs->mesh().size());
  const std::vector<int64_t> one_each(bytes.size(), 1);
  impl_->on_all([&](size_t n) {
    KeptIfThrown<std::vector<int64_t>> room;  // all ranks' bytes, then our own, to which a library may still write
    std::vector<int64_t>& all = *room;
    all.resize(bytes.size() + 1);
    const size_t beside = impl_->options.saves ? saved_bytes(*impl_->programs, impl_->here[n]) : 0;
    all.back() = static_cast<int64_t>(impl_->ranks[n]->peak_bytes(plans[n]->arena_bytes() + beside));
    impl_->ranks[n]->communicators().everyone().run({.kind = comm::Kind::all_gather,
                                                     .dtype = DType::int64,
                                                     .in = &all.back(),
                                                     .out = all.data(),
                                                     .counts = one_each,
                                                     .label = "peak bytes"});
    if (n == 0) bytes.assign(all.begin(), all.end() - 1);
  });
  return {bytes.begin(), bytes.end()};
}

size_t Executor::process_bytes() const {
  std::lock_guard lock(impl_->running);
  return impl_->process_bytes();
}

}  // namespace tessera::runtime
