#include "tessera/runtime/executor.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/ir/hash.h"
#include "tessera/runtime/executor_impl.h"
#include "tessera/runtime/input_sizes.h"
#include "tessera/runtime/output_parts.h"

namespace tessera::runtime {
namespace {

// The ranks of this process.
std::vector<int> ranks_here(const Mesh& mesh, const std::shared_ptr<comm::World>& connected, int runs) {
  const int64_t ranks = mesh.size();
  std::vector<int> here(static_cast<size_t>(ranks));
  std::iota(here.begin(), here.end(), 0);
  if (connected) {
    if (connected->size() != ranks)
      fail("run", "{} of {} is given, but {} started; name a mesh of {}, or start {}",
           mesh.axes().empty() ? "no mesh" : "the mesh " + mesh.str(), counted(ranks, "rank"),
           counted(connected->size(), "process was", "processes were"), counted(connected->size(), "rank"), ranks);
    here = connected->local_ranks();
  }
  if (here.size() > kMostRanksHere)
    fail("run",
         "{} ranks as threads of one process are too many (at most {}); use a smaller mesh; `compile` gives "
         "the plan of a large one",
         here.size(), kMostRanksHere);
  if (here.size() * static_cast<size_t>(runs) > kMostRanksHere)
    fail("run", "{} runs at once of {} each are too many threads (at most {}); allow fewer concurrent runs", runs,
         counted(here.size(), "rank"), kMostRanksHere);
  return here;
}

// The model's names of states that never change.
std::set<std::string> fixed_states(const RankPrograms& programs) {
  std::set<std::string> fixed;
  for (const auto& program : programs.programs)
    for (const Value* state : program->graph->values_of(ValueKind::state)) {
      if (state->changing || program->derived.contains(state)) continue;
      const spmd::Placement& placement = program->placement(state);
      fixed.insert(placement.origin ? placement.origin->name : placement.name);
    }
  return fixed;
}

// Throws a user error unless an output fits into the caller's memory for it.
void require_fits(const std::string& output, const Tensor& memory, DType dtype, const Dims& dims) {
  if (memory.dtype != dtype || memory.dims != dims)
    fail("outputs",
         "the output '{}' is {} [{}], but the memory given for it is for {} [{}]; give a tensor of that type", output,
         name_of(dtype), fmt::join(dims, ", "), name_of(memory.dtype), fmt::join(memory.dims, ", "));
  memory.require_whole(output);
  if (!memory.is_writable())
    fail("outputs",
         "the memory given for the output '{}' is read only; borrow memory that may be written by "
         "Tensor::borrow_mutable()",
         output);
}

uint64_t hash_of(const Executor::Tensors& inputs) {
  Hash hash;
  for (const auto& [name, tensor] : inputs) {
    hash.add(name);
    hash.add(tensor);
  }
  return hash.value();
}

}  // namespace

int threads_of_rank(const RankPrograms& programs, const ExecutorOptions& options) {
#ifdef TESSERA_THREAD_SANITIZER
  return 1;  // libgomp's barriers are not instrumented
#endif
  if (options.threads_per_rank > 0) return options.threads_per_rank;
  const int64_t ranks = options.machine_ranks > 0 ? options.machine_ranks : programs.mesh().size();
  const int64_t teams = ranks * options.concurrent_runs;
  return std::max<int>(1, static_cast<int>(std::thread::hardware_concurrency() / teams));
}

Executor::Executor(std::shared_ptr<const spmd::Program> program, const ExecutorOptions& options)
    : Executor(RankPrograms::same(std::move(program)), options) {}

// States that step make each run depend on the one before.
ExecutorOptions options_for(const RankPrograms& programs, ExecutorOptions options) {
  const bool takes_turns = options.connected || options.keep_all || options.profile || options.states ||
                           !programs.changing_states().empty() ||
                           !device::make_device(options.device)->uses_host_memory();
  if (takes_turns) options.concurrent_runs = 1;
  return options;
}

Executor::Impl::Impl(std::shared_ptr<const RankPrograms> given, const ExecutorOptions& asked, Impl* first_team)
    : programs(std::move(given)),
      options(asked),
      first(first_team),
      share(first           ? first->share
            : options.share ? options.share
                            : own_share()),
      store(options.states ? options.states : std::make_shared<StateStore>(share->weights)),
      team({options.world, options.connected, threads_of_rank(*programs, options), options.concurrent_runs,
            options.grace, options.abandoned, options.spin},
           [this] { drop_plans_of_failed_world(); }) {
  const Mesh& mesh = programs->mesh();
  const std::vector<int> here = ranks_here(mesh, options.connected, options.concurrent_runs);
  if (options.keep_all) compute_all_in_steps();
  const std::string device(device::make_device(options.device)->name());
  store->admit(mesh, here, device, whole_states(*programs), fixed_states(*programs));
  int local_rank = options.local_rank;
  for (int rank : here)
    team.add(std::make_unique<RankState>(mesh, rank, team.threads(), memory, store->of(rank),
                                         device::make_device(options.device, local_rank++), store->weights()));
  team.connect();
}

std::shared_ptr<ProcessShare> Executor::Impl::own_share() const {
  if (!options.connected) return std::make_shared<ProcessShare>(options.memory_limit);
  // It may outlive this executor.
  return std::make_shared<ProcessShare>(options.memory_limit, [world = options.connected](size_t bytes) {
    return world->allocate(world->local_ranks().front(), bytes, "an output");
  });
}

// Every value is one of the run that keeps all.
void Executor::Impl::compute_all_in_steps() {
  const auto of_steps = [](std::shared_ptr<const RankPrograms> made) {
    auto in_steps = in_one_graph(*made);
    return in_steps ? in_steps : made;
  };
  programs = of_steps(programs);
  using Made = std::map<std::shared_ptr<const RankPrograms>, std::shared_ptr<const RankPrograms>>;
  if (options.for_sizes)
    options.for_sizes = [of_steps, for_sizes = options.for_sizes,
                         known = std::make_shared<Made>()](const Symbols& fixed) {
      auto made = for_sizes(fixed);
      auto& in_steps = (*known)[made];
      return in_steps ? in_steps : in_steps = of_steps(made);
    };
}

void Executor::Impl::on_all(const std::function<void(size_t)>& task, std::vector<const Tensors*> tensors) {
  lent = std::move(tensors);
  team.on_all(task);
  lent.clear();
}

// Their communicators belong to that world. A library may still use memory of operations that are under way while ranks
// tell each other how the run has ended.
void Executor::Impl::drop_plans_of_failed_world() {
  times.clear();
  if (options.connected) {
    for (const Tensors* tensors : lent) keep_for_good(*tensors);
    plans.abandon_memory();
    for (size_t n = 0; n < team.size(); ++n) team[n].abandon_memory();
    keep_for_good(programs);
  }
  lent.clear();
  commit();
  plans.clear();
  last = nullptr;
}

Symbols Executor::Impl::alike(const Tensors& inputs, const std::function<Symbols()>& bind) {
  if (team.is_all()) return bind();
  team.join(*programs);
  Symbols symbols;
  std::exception_ptr failed;
  try {
    symbols = bind();
  } catch (...) {
    failed = std::current_exception();
  }
  // The hash comes first, because long texts are cut.
  std::string given = fmt::format("inputs with the hash {:016x}", hash_of(inputs));
  for (const auto& [symbol, size] : symbols) given += fmt::format(", {}={}", symbol, size);
  team.on_all_in_agreement([&](size_t) { return failed; }, {"inputs", given});
  return symbols;
}

void Executor::Impl::require_outputs(const Tensors& wanted, const Tensors& inputs, const Symbols& symbols) const {
  const auto share = [](const Tensor& a, const Tensor& b) {
    return a.bytes > 0 && b.bytes > 0 && a.data < b.data + b.bytes && b.data < a.data + a.bytes;
  };
  const spmd::Program& program = programs->of(team.here().front());
  for (auto output = wanted.begin(); output != wanted.end(); ++output) {
    const std::string& name = output->first;
    const Tensor& memory = output->second;
    const auto port = std::find_if(program.outputs.begin(), program.outputs.end(),
                                   [&](const spmd::Port& each) { return each.name == name; });
    if (port == program.outputs.end()) fail("outputs", "the model has no output '{}'", name);
    const RankPrograms::Output whole = programs->output(static_cast<size_t>(port - program.outputs.begin()));
    require_fits(name, memory, whole.value->dtype(), bound_dims(*whole.placement->global.shape, symbols));
    for (const auto& [input, given] : inputs)
      if (share(memory, given))
        fail("outputs", "the memory given for the output '{}' is also that of the input '{}'; give another", name,
             input);
    for (auto other = std::next(output); other != wanted.end(); ++other)
      if (share(memory, other->second))
        fail("outputs", "the outputs '{}' and '{}' are given the same memory; give each its own", name, other->first);
  }
}

// Whether the ranks may stop before the same communication: they are all here, and have the same ones in one order.
bool Executor::Impl::stops_together(const PlanSet& set) const {
  const RankPrograms& chosen = *set.front()->programs();
  return !options.connected && chosen.programs.size() == 1 &&
         std::all_of(set.begin(), set.end(), [](const auto& plan) { return plan->may_stop_together(); });
}

Executor::Tensors Executor::Impl::take_outputs(const PlanSet& set, const Symbols& symbols, const Tensors& wanted,
                                               bool is_direct) {
  Tensors outputs;
  try {
    const RankPrograms& chosen = *set.front()->programs();
    const spmd::Program& program = chosen.of(team.here().front());
    const size_t all_arenas = all_arenas_with(set);
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const std::string& name = program.outputs[i].name;
      const RankPrograms::Output whole = chosen.output(i);
      const DType dtype = whole.value->dtype();
      const Dims dims = bound_dims(*whole.placement->global.shape, symbols);
      const auto given = wanted.find(name);
      Tensor& output = outputs[name];
      if (output.data) continue;
      output = given != wanted.end() && is_direct
                   ? given->second
                   : pool.take(dtype, dims, fmt::format("the output '{}'", name), all_arenas);
    }
    return outputs;
  } catch (...) {
    if (!team.is_all()) team.on_all([failed = std::current_exception()](size_t) { std::rethrow_exception(failed); });
    throw;
  }
}

/// Teams of ranks that run at once. A caller takes one that is idle, or waits for the next.
class Executor::Teams {
 public:
  explicit Teams(Impl& first) {
    for (int n = 1; n < first.options.concurrent_runs; ++n)
      others_.push_back(std::make_unique<Impl>(first.programs, first.options, &first));
    for (const auto& other : others_) all_.push_back(other.get());
    all_.push_back(&first);
    idle_ = all_;
  }

  /// Calls `task` for each team, one after the other.
  void for_each(const std::function<void(Impl&)>& task) {
    for (Impl* team : all_) task(*team);
  }

  class Turn {
   public:
    explicit Turn(Teams& teams) : teams_(teams), team_(teams.take()) {}
    ~Turn() { teams_.give_back(team_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Impl& team() const { return *team_; }

   private:
    Teams& teams_;
    Impl* team_;
  };

 private:
  // That which was used last has its data in the caches.
  Impl* take() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return !idle_.empty(); });
    Impl* team = idle_.back();
    idle_.pop_back();
    return team;
  }
  void give_back(Impl* team) {
    {
      const std::lock_guard lock(mutex_);
      idle_.push_back(team);
    }
    freed_.notify_one();
  }

  std::vector<std::unique_ptr<Impl>> others_;
  std::vector<Impl*> all_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Impl*> idle_;
};

Executor::Executor(std::shared_ptr<const RankPrograms> programs, const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(programs, options_for(*programs, options))) {
  if (impl_->options.concurrent_runs > 1) teams_ = std::make_unique<Teams>(*impl_);
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
int Executor::threads_per_rank() const {
  return impl_->team.threads();
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
      fail("inputs", "input '{}' has {} ({}), but the model needs {}: {}", port.name,
           counted(tensor.dims.size(), "dimension"), fmt::join(tensor.dims, "x"), type.shape->size(),
           to_string(*type.shape));
    tensor.require_whole(port.name);
    sizes.add(port.name, *type.shape, tensor.dims);
  }
  const Symbols symbols = sizes.solved();
  programs_for(impl_->programs, symbols, impl_->options.for_sizes);
  return symbols;
}

Executor::Tensors Executor::run(const Tensors& inputs, const RunLimits& limits, Tensors wanted) {
  if (!teams_) return run_on(*impl_, inputs, limits, std::move(wanted));
  const Teams::Turn turn(*teams_);
  return run_on(turn.team(), inputs, limits, std::move(wanted));
}

Executor::Tensors Executor::run_on(Impl& impl, const Tensors& inputs, const RunLimits& limits, Tensors wanted) {
  std::scoped_lock lock(impl.running, impl.store->running);
  impl.commit();
  Symbols symbols = impl.alike(inputs, [&] {
    impl.store->require_whole();
    const Symbols bound = bind_symbols(inputs);
    impl.require_outputs(wanted, inputs, bound);
    return bound;
  });
  if (!impl.options.connected) limits.require_going_on();  // else ranks would wait for this one
  auto& plans = impl.plan(symbols);
  const RankPrograms& programs = *plans.front()->programs();
  // Ranks of a written program may have values of their own, so it is that of the first rank here.
  const spmd::Program& program = programs.of(impl.team.here().front());
  impl.last = &plans;
  impl.last_symbols = symbols;
  if (impl.options.keep_all) impl.last_inputs = inputs;
  if (impl.options.profile) impl.times.resize(impl.team.size());
  std::vector<const void*> given;
  for (const spmd::Port& port : program.inputs) given.push_back(inputs.at(port.name).data);
  const bool is_direct = !impl.options.connected;  // else other processes may have to reach them
  Tensors outputs = impl.take_outputs(plans, symbols, wanted, is_direct);
  std::vector<void*> made;
  std::vector<std::string> called;  // outputs, in the ranks' programs
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    made.push_back(outputs.at(program.outputs[i].name).mutable_data());
    called.push_back(programs.output(i).value->name);
  }
  if (!impl.team.has_first())
    for (auto& plan : plans) plan->leave_outputs();
  StopPoint stop;
  StopPoint* const together = limits.is_any() && impl.stops_together(plans) ? &stop : nullptr;
  std::atomic<bool> stopped = false;
  try {
    impl.on_all(
        [&](size_t n) {
          if (!plans[n]->run(given, made, impl.options.profile ? &impl.times[n] : nullptr, limits, together)) {
            stopped = true;
            return;
          }
          for (size_t i = 0; i < made.size(); ++i)
            bring_parts(impl.team[n], programs, symbols, impl.team.here(), called[i], made[i], plans[n]->own_part(i));
        },
        {&inputs, &outputs});
  } catch (...) {
    impl.store->note_failure();
    throw;
  }
  if (stopped) {
    impl.last = nullptr;
    impl.times.clear();
    limits.require_going_on();
  }
  impl.uncommitted = &plans;
  if (!impl.options.keep_all) impl.commit();  // else kept() reads the values before
  if (!impl.team.has_first()) return {};
  if (!is_direct)
    for (auto& [name, output] : wanted) {
      std::memcpy(output.mutable_data(), outputs.at(name).data, output.bytes);
      outputs[name] = output;
    }
  return outputs;
}

void Executor::for_each_team(const std::function<void(Impl&)>& task) const {
  const auto in_turn = [&](Impl& team) {
    const std::lock_guard lock(team.running);
    task(team);
  };
  if (teams_)
    teams_->for_each(in_turn);
  else
    in_turn(*impl_);
}

void Executor::prepare(const Symbols& symbols) {
  for_each_team([&](Impl& team) {
    const std::lock_guard lock(team.store->running);
    team.commit();
    team.plan(symbols);
  });
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
    const size_t beside = impl_->options.saves ? saved_bytes(*impl_->programs, impl_->team.here()[n]) : 0;
    all.back() = static_cast<int64_t>(impl_->team[n].peak_bytes(plans[n]->arena_bytes() + beside));
    impl_->team[n].communicators().everyone().run({.kind = comm::Kind::all_gather,
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
  ProcessMemory all;
  all.add_running(impl_->most_running);
  for_each_team([&](Impl& team) { team.add_held(all); });
  return all.peak();
}

}  // namespace tessera::runtime
