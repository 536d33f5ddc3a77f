#include "tessera/runtime/executor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/base/error_kind.h"
#include "tessera/base/keep.h"
#include "tessera/ir/hash.h"
#include "tessera/runtime/agreement.h"
#include "tessera/runtime/output_parts.h"
#include "tessera/runtime/tensor_pool.h"
#include "tessera/runtime/worker.h"

namespace tessera::runtime {
namespace {

int team_size(int asked, int64_t ranks) {
#ifdef TESSERA_THREAD_SANITIZER
  return 1;  // libgomp's barriers are not instrumented
#endif
  if (asked > 0) return asked;
  return std::max<int>(1, static_cast<int>(std::thread::hardware_concurrency() / ranks));
}

uint64_t hash_of(const Executor::Tensors& inputs) {
  Hash hash;
  for (const auto& [name, tensor] : inputs) {
    hash.add(name);
    hash.add(tensor);
  }
  return hash.value();
}

std::string ranks_text(int64_t ranks) {
  return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

// The rank's part of a state, to and from the whole.
void store_part(RankState& rank, const StateSlot& slot, const Box& box, void* whole) {
  if (slot.bytes == 0) return;
  rank.read(slot.current.get(), slot.bytes, [&](const void* part) {
    if (box.count() == count_of(box.dims))
      std::memcpy(whole, part, slot.bytes);
    else
      copy_to_whole(whole, part, box, static_cast<size_t>(bits_of(slot.dtype)) / 8);
  });
}
void load_part(RankState& rank, StateSlot& slot, const Box& box, const void* whole) {
  if (slot.bytes == 0) return;
  rank.write(slot.current.get(), slot.bytes, [&](void* part) {
    if (box.count() == count_of(box.dims))
      std::memcpy(part, whole, slot.bytes);
    else
      copy_from_whole(part, whole, box, static_cast<size_t>(bits_of(slot.dtype)) / 8);
  });
}

std::string names_of(const std::map<std::string, RankPrograms::Output>& states) {
  std::vector<std::string> names;
  for (const auto& [name, state] : states) names.push_back("'" + name + "'");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

Dims bound_dims(const Shape& shape, const Symbols& symbols) {
  Dims dims;
  for (const Expr& extent : shape) dims.push_back(extent.evaluate(symbols));
  return dims;
}

}  // namespace

struct Executor::Impl {
  explicit Impl(const ExecutorOptions& asked)
      : options(asked),
        memory(asked.memory_limit),
        store(asked.states ? asked.states : std::make_shared<StateStore>()) {}

  std::shared_ptr<const RankPrograms> programs;
  ExecutorOptions options;
  device::MemoryLimit memory;
  std::shared_ptr<StateStore> store;
  int threads = 1;
  std::mutex running;
  std::shared_ptr<comm::World> world;
  std::vector<int> here;  ///< the ranks of this process; ranks, workers, plans and times are in this order
  std::vector<std::unique_ptr<RankState>> ranks;
  std::vector<std::unique_ptr<Worker>> workers;
  using PlanSet = std::vector<std::unique_ptr<RankPlan>>;
  struct Cached {
    PlanSet plans;
    uint64_t used = 0;  ///< when, in calls
  };
  std::map<Symbols, Cached> plans;
  /// Memory for outputs, where the ranks that make them can reach.
  TensorPool pool{memory, [this](size_t bytes) { return world->allocate(here.front(), bytes, "an output"); }};
  uint64_t calls = 0;
  PlanSet* uncommitted = nullptr;        ///< whose run has ended well, and whose states have not stepped yet
  PlanSet* last = nullptr;               ///< of the last run; null if it has been dropped since
  std::vector<RankTimes> times;          ///< of the last run, with profile
  Tensors last_inputs;                   ///< with keep_all: kept values may be views of them
  Symbols last_symbols;                  ///< of the last run
  std::vector<comm::FlightLog> flights;  ///< of the last run that failed

  std::set<const RankPrograms*> joined;  ///< whose groups the ranks have joined in the world
  bool compared = false;                 ///< what ranks have loaded
  std::exception_ptr unlike;             ///< what came of it, if ranks differ: there will be no run

  void commit() {
    if (PlanSet* plans_to_commit = std::exchange(uncommitted, nullptr))
      for (auto& plan : *plans_to_commit) plan->commit();
  }

  // Every value is one of the run that keeps all.
  void compute_all_in_steps() {
    const auto of_steps = [](std::shared_ptr<const RankPrograms> made) {
      auto joined = in_one_graph(*made);
      return joined ? joined : made;
    };
    programs = of_steps(programs);
    using Made = std::map<std::shared_ptr<const RankPrograms>, std::shared_ptr<const RankPrograms>>;
    if (options.for_sizes)
      options.for_sizes = [of_steps, for_sizes = options.for_sizes,
                           known = std::make_shared<Made>()](const Symbols& fixed) {
        auto made = for_sizes(fixed);
        auto& joined = (*known)[made];
        return joined ? joined : joined = of_steps(made);
      };
  }

  bool is_whole() const { return here.front() == 0; }  ///< outputs come together in this process

  void connect() {
    comm::WorldOptions world_options = options.world;
    world_options.spin = static_cast<unsigned>(threads) * ranks.size() <= std::thread::hardware_concurrency();
    world =
        options.connected ? options.connected : comm::make_local_world(static_cast<int>(ranks.size()), world_options);
    for (auto& rank : ranks) rank->connect(world.get());
    joined.clear();
  }

  // Before anything of them runs: ranks of other processes wait for each other there, and for nothing else then.
  void join(const RankPrograms& of) {
    if (here.size() == static_cast<size_t>(world->size()) || joined.contains(&of)) return;
    on_all([&](size_t n) { ranks[n]->join_groups(of); });
    joined.insert(&of);
  }

  // Runs `task` for the n-th rank of this process, for each n on that rank's thread, and waits for all. The first
  // failure, by time, ends the world, so that no other rank waits for the one that failed, and is thrown. `lent`: what
  // communications of the task may read or write that is not the ranks' own.
  void on_all(const std::function<void(size_t)>& task, const std::vector<const Tensors*>& lent = {}) {
    std::mutex mutex;
    std::exception_ptr first;
    std::string message;  // of the first
    for (size_t n = 0; n < workers.size(); ++n)
      workers[n]->start([&, n] {
        try {
          task(n);
        } catch (const std::exception& error) {
          ranks[n]->flight().give_up();
          {
            std::lock_guard lock(mutex);
            if (!first) first = std::current_exception(), message = error.what();
          }
          world->abort(here[n], error.what(), error_kind(error));
          ranks[n]->settle();
        }
      });
    const auto failure = [&] {
      std::lock_guard lock(mutex);
      return message;
    };
    constexpr std::chrono::milliseconds kSlice{50};
    std::chrono::milliseconds waited{0};  // since a rank has failed
    bool told = false;
    for (auto& worker : workers)
      while (!worker->finish_within(kSlice)) {
        if (failure().empty()) continue;
        waited += kSlice;
        if (waited < options.grace || !options.abandoned || std::exchange(told, true)) continue;
        options.abandoned(failure(), comm::logs_of(*world));
      }
    if (!first) return;
    flights = comm::logs_of(*world);
    times.clear();
    if (options.connected) abandon_memory(lent);
    commit();
    plans.clear();  // their communicators are of the world that ended
    for (auto& rank : ranks) rank->forget_values();
    last = nullptr;
    connect();
    std::rethrow_exception(first);
  }

  // A library goes on with what is under way for as long as ranks tell each other how the run has ended.
  void abandon_memory(const std::vector<const Tensors*>& lent) {
    for (const Tensors* tensors : lent) keep_for_good(*tensors);
    for (auto& cached : plans)
      for (auto& plan : cached.second.plans) {
        plan->abandon_memory();
        keep_for_good(plan->programs());
      }
    for (auto& rank : ranks) rank->abandon_memory();
    keep_for_good(programs);
  }

  // Like on_all(), of a task whose error is to be thrown on all ranks, whose world goes on; likewise if they have been
  // `given` different things.
  void on_all_in_agreement(const std::function<std::exception_ptr(size_t)>& task, const Given& given) {
    std::vector<std::exception_ptr> errors(ranks.size());
    on_all([&](size_t n) { errors[n] = agree(ranks[n]->everyone(), task(n), given); });
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

  // The sizes that `bind` finds, which are the same for all ranks, as the inputs are, also where each process is given
  // inputs of its own.
  Symbols alike(const Tensors& inputs, const std::function<Symbols()>& bind) {
    if (here.size() == static_cast<size_t>(world->size())) return bind();
    join(*programs);
    Symbols symbols;
    std::exception_ptr failed;
    try {
      symbols = bind();
    } catch (...) {
      failed = std::current_exception();
    }
    // The hash first: words are cut.
    std::string given = fmt::format("inputs with the hash {:016x}", hash_of(inputs));
    for (const auto& [symbol, size] : symbols) given += fmt::format(", {}={}", symbol, size);
    on_all_in_agreement([&](size_t) { return failed; }, {"inputs", given});
    return symbols;
  }

  void drop_oldest_plan() {
    auto oldest = std::min_element(plans.begin(), plans.end(),
                                   [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    if (&oldest->second.plans == last) last = nullptr;
    if (&oldest->second.plans == uncommitted) commit();
    const auto of = oldest->second.plans.front()->programs();
    plans.erase(oldest);
    forget_unused(of);
  }

  // What ranks keep for programs that no plan runs any more; they are known by where they lie.
  void forget_unused(const std::shared_ptr<const RankPrograms>& of) {
    auto uses = [&](const auto& cached) { return cached.second.plans.front()->programs() == of; };
    if (of == programs || std::any_of(plans.begin(), plans.end(), uses)) return;
    joined.erase(of.get());
    on_all([&](size_t n) { ranks[n]->forget(*of); });
  }

  // Null: there is none.
  const PlanSet* latest_plan_of(const std::shared_ptr<const RankPrograms>& of) const {
    const Cached* latest = nullptr;
    for (const auto& [symbols, cached] : plans)
      if (cached.plans.front()->programs() == of && (!latest || cached.used > latest->used)) latest = &cached;
    return latest ? &latest->plans : nullptr;
  }

  PlanSet& plan(const Symbols& symbols) {
    join(*programs);
    auto known = plans.find(symbols);
    if (known != plans.end()) {
      known->second.used = ++calls;
      return known->second.plans;
    }
    const std::shared_ptr<const RankPrograms> chosen = programs_for(programs, symbols, options.for_sizes);
    join(*chosen);
    PlanSet made(ranks.size());
    const auto failure_of = [](const auto& step) -> std::exception_ptr {
      try {
        step();
        return nullptr;
      } catch (...) {
        return std::current_exception();
      }
    };
    const PlanOptions plan_options{options.keep_all, options.overlap, options.prefetch};
    const PlanSet* like = latest_plan_of(chosen);
    try {
      std::vector<std::exception_ptr> failures(ranks.size());
      on_all([&](size_t n) {
        failures[n] = failure_of([&] {
          if (like) made[n] = RankPlan::rebound(*(*like)[n], symbols);
          if (!made[n]) made[n] = std::make_unique<RankPlan>(*ranks[n], chosen, symbols, plan_options);
        });
      });
      if (std::count(failures.begin(), failures.end(), nullptr) == std::ssize(failures))
        failures.front() = failure_of([&] { require_memory(made, symbols); });
      on_all_in_agreement([&](size_t n) { return failures[n]; }, {"plan", ""});
      if (options.connected && options.loaded && !std::exchange(compared, true))
        unlike = failure_of([&] {
          on_all_in_agreement([&](size_t n) { return failure_of([&] { options.loaded(ranks[n]->everyone()); }); },
                              {"weights", "", true});
        });
      if (unlike) std::rethrow_exception(unlike);
    } catch (...) {
      made.clear();
      forget_unused(chosen);
      throw;
    }
    PlanSet& kept = plans.emplace(symbols, Cached{std::move(made), ++calls}).first->second.plans;
    if (plans.size() > kCachedSignatures) drop_oldest_plan();
    return kept;
  }

  // The bytes of this process' arenas when these plans run.
  size_t arenas_of(const PlanSet& made) const {
    size_t bytes = 0;
    for (size_t n = 0; n < made.size(); ++n)
      bytes = checked_add(bytes, ranks[n]->bytes_to_run(made[n]->machine()), "the ranks' arenas");
    return bytes;
  }

  // Memory for a run's outputs. Where there is none, processes that wait for this one are told.
  Tensors take_outputs(const PlanSet& set, const Symbols& symbols) {
    Tensors outputs;
    try {
      const RankPrograms& chosen = *set.front()->programs();
      const spmd::Program& program = chosen.of(here.front());
      const size_t arenas = arenas_of(set);
      for (size_t i = 0; i < program.outputs.size(); ++i) {
        const std::string& name = program.outputs[i].name;
        const RankPrograms::Output whole = chosen.output(i);
        if (Tensor& output = outputs[name]; !output.data)
          output = pool.take(whole.value->dtype(), bound_dims(*whole.placement->global.shape, symbols),
                             fmt::format("the output '{}'", name), arenas);
      }
      return outputs;
    } catch (...) {
      if (here.size() < static_cast<size_t>(world->size()))
        on_all([failed = std::current_exception()](size_t) { std::rethrow_exception(failed); });
      throw;
    }
  }

  // That arenas and outputs are within the limit, beside what the ranks hold already.
  void require_memory(const PlanSet& made, const Symbols& symbols) const {
    std::map<std::string, size_t> outputs;
    const RankPrograms& chosen = *made.front()->programs();
    const spmd::Program& program = chosen.of(here.front());
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const std::string& name = program.outputs[i].name;
      const RankPrograms::Output whole = chosen.output(i);
      const Dims dims = bound_dims(*whole.placement->global.shape, symbols);
      require_countable(whole.value->dtype(), dims, name);
      outputs[name] = bytes_of(whole.value->dtype(), count_of(dims));
    }
    size_t bytes = arenas_of(made);
    for (const auto& [name, output] : outputs) bytes = checked_add(bytes, output, "the outputs");
    memory.require_plan(
        bytes,
        [&] {
          std::vector<device::NamedBytes> pieces;
          for (const auto& plan : made)
            for (device::NamedBytes& piece : plan->pieces()) pieces.push_back(std::move(piece));
          for (const auto& [name, output] : outputs) pieces.push_back({fmt::format("the output '{}'", name), output});
          return pieces;
        },
        pool.idle());
  }
};

Executor::Executor(std::shared_ptr<const spmd::Program> program, const ExecutorOptions& options)
    : Executor(RankPrograms::same(std::move(program)), options) {}

Executor::Executor(std::shared_ptr<const RankPrograms> programs, const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
  constexpr size_t kMostRanks = 256;
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
  if (impl_->here.size() > kMostRanks)
    fail("run",
         "{} ranks as threads of one process are too many (at most {}); use a smaller mesh, or --dry-run to see "
         "the plan of a large one",
         impl_->here.size(), kMostRanks);
  impl_->programs = std::move(programs);
  if (options.keep_all) impl_->compute_all_in_steps();
  std::set<std::string> changing, fixed;
  for (const auto& program : impl_->programs->programs)
    for (const Value* state : program->graph->values_of(ValueKind::state))
      if (!program->derived.contains(state))
        (state->changing ? changing : fixed).insert(program->placement(state).name);
  impl_->store->join(impl_->programs->mesh(), impl_->here, options.device, changing, fixed);
  impl_->threads = team_size(options.threads_per_rank, options.machine_ranks > 0 ? options.machine_ranks : ranks);
  for (int rank : impl_->here) {
    impl_->ranks.push_back(std::make_unique<RankState>(impl_->programs->mesh(), rank, impl_->threads, &impl_->memory,
                                                       impl_->store->of(rank), device::make_device(options.device)));
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
  Symbols symbols;
  std::map<std::string, std::string> bound_by;
  for (const spmd::Port& port : program.inputs) {
    const TensorType& type = program.placement(port.value).global;
    auto given = inputs.find(port.name);
    if (given == inputs.end())
      fail("inputs", "input '{}' ({} {}) is missing; give an array of that name", port.name, name_of(type.dtype),
           to_string(*type.shape));
    const Tensor& tensor = given->second;
    if (tensor.dtype != type.dtype)
      fail("inputs", "input '{}' has dtype {}, but the model wants {}", port.name, name_of(tensor.dtype),
           name_of(type.dtype));
    if (tensor.dims.size() != type.shape->size())
      fail("inputs", "input '{}' has {} dimensions ({}), but the model wants {}: {}", port.name, tensor.dims.size(),
           fmt::join(tensor.dims, "x"), type.shape->size(), to_string(*type.shape));
    for (size_t d = 0; d < tensor.dims.size(); ++d)
      if (auto symbol = (*type.shape)[d].as_symbol()) {
        auto [known, fresh] = symbols.emplace(*symbol, tensor.dims[d]);
        if (fresh)
          bound_by[*symbol] = fmt::format("'{}' dimension {}", port.name, d);
        else if (known->second != tensor.dims[d])
          fail("inputs", "input '{}': dimension {} ({}) has extent {}, but {} has made it {}; they must be equal",
               port.name, d, *symbol, tensor.dims[d], bound_by[*symbol], known->second);
      }
  }
  for (const spmd::Port& port : program.inputs) {
    const TensorType& type = program.placement(port.value).global;
    const Tensor& tensor = inputs.at(port.name);
    for (size_t d = 0; d < tensor.dims.size(); ++d) {
      int64_t wanted = (*type.shape)[d].evaluate(symbols);
      if (wanted != tensor.dims[d])
        fail("inputs", "input '{}': dimension {} has extent {}, but the model wants {}{}", port.name, d, tensor.dims[d],
             wanted, (*type.shape)[d].is_constant() ? "" : " (" + (*type.shape)[d].str() + ")");
    }
  }
  programs_for(impl_->programs, symbols, impl_->options.for_sizes);
  return symbols;
}

Executor::Tensors Executor::run(const Tensors& inputs) {
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
  Tensors outputs = impl_->take_outputs(plans, symbols);
  std::vector<void*> made;
  std::vector<std::string> called;  // outputs, in the ranks' programs
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    made.push_back(outputs.at(program.outputs[i].name).mutable_data());
    called.push_back(programs.output(i).value->name);
  }
  try {
    impl_->on_all(
        [&](size_t n) {
          plans[n]->run(given, made, impl_->options.profile ? &impl_->times[n] : nullptr);
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
  return impl_->is_whole() ? std::move(outputs) : Tensors{};
}

Executor::Tensors Executor::states() {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->commit();
  impl_->store->require_whole();
  const RankPrograms& programs = *impl_->programs;
  impl_->join(programs);
  const std::map<std::string, RankPrograms::Output> all = programs.changing_states();
  Tensors states;
  try {
    for (const auto& [name, state] : all) {
      const Dims dims = bound_dims(*state.placement->global.shape, {});
      const size_t bytes = bytes_of(state.value->dtype(), count_of(dims));
      auto held = impl_->memory.hold(bytes, fmt::format("the whole of '{}'", name));
      states[name] = device::MemoryLimit::released_with(Tensor::zeros(state.value->dtype(), dims), std::move(held));
    }
  } catch (...) {  // processes that wait for this one are told
    if (impl_->here.size() < static_cast<size_t>(impl_->world->size()))
      impl_->on_all([failed = std::current_exception()](size_t) { std::rethrow_exception(failed); });
    throw;
  }
  impl_->on_all(
      [&](size_t n) {
        RankState& rank = *impl_->ranks[n];
        const spmd::Program& program = programs.of(rank.rank());
        const auto own = programs.changing_states(rank.rank());
        for (auto& [name, whole] : states) {
          const auto state = own.find(name);
          if (state != own.end() && spmd::writes_part(program, state->second.value, rank.coordinates()))
            store_part(rank, rank.slot(programs, state->second.value),
                       spmd::held_part(program, state->second.value, rank.coordinates(), {}), whole.mutable_data());
          bring_parts(rank, programs, {}, impl_->here, all.at(name).value->name, whole.mutable_data());
        }
      },
      {&states});
  return impl_->is_whole() ? std::move(states) : Tensors{};
}

void Executor::set_states(const Tensors& given) {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->commit();
  const RankPrograms& programs = *impl_->programs;
  const std::map<std::string, RankPrograms::Output> all = programs.changing_states();
  impl_->alike(given, [&]() -> Symbols {
    for (const auto& [name, tensor] : given) {
      auto state = all.find(name);
      if (state == all.end())
        fail("state", "the program has no state '{}' that changes; it has: {}", name, names_of(all));
      const Dims dims = bound_dims(*state->second.placement->global.shape, {});
      if (tensor.dtype != state->second.value->dtype() || tensor.dims != dims)
        fail("state", "the state '{}' is {} [{}], but the array is {} [{}]; give one of the state's type", name,
             name_of(state->second.value->dtype()), fmt::join(dims, ", "), name_of(tensor.dtype),
             fmt::join(tensor.dims, ", "));
    }
    return {};
  });
  std::set<std::string> names;
  for (const auto& [name, tensor] : given) names.insert(name);
  const auto on_each = [&](const std::function<void(RankState&, const Value*, const Tensor&)>& visit) {
    impl_->on_all(
        [&](size_t n) {
          RankState& rank = *impl_->ranks[n];
          for (const auto& [name, state] : programs.changing_states(rank.rank()))
            if (const auto whole = given.find(name); whole != given.end()) visit(rank, state.value, whole->second);
        },
        {&given});
  };
  on_each([&](RankState& rank, const Value* state, const Tensor&) { rank.slot(programs, state); });  // may fail
  impl_->store->note_torn(names);
  on_each([&](RankState& rank, const Value* state, const Tensor& whole) {
    const spmd::Program& program = programs.of(rank.rank());
    load_part(rank, rank.slot(programs, state), spmd::held_part(program, state, rank.coordinates(), {}), whole.data);
  });
  impl_->store->note_written(names);
}

const std::shared_ptr<StateStore>& Executor::store() const {
  return impl_->store;
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
    all.back() = static_cast<int64_t>(impl_->ranks[n]->peak_bytes(plans[n]->arena_bytes()));
    impl_->ranks[n]->everyone().run({.kind = comm::Kind::all_gather,
                                     .dtype = DType::int64,
                                     .in = &all.back(),
                                     .out = all.data(),
                                     .counts = one_each,
                                     .label = "peak bytes"});
    if (n == 0) bytes.assign(all.begin(), all.end() - 1);
  });
  return {bytes.begin(), bytes.end()};
}

std::vector<Executor::Kept> Executor::kept() {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  check(impl_->options.keep_all && impl_->last, "values are kept only by a run with keep_all");
  const RankPrograms& programs = *impl_->last->front()->programs();
  std::vector<Kept> values;
  std::vector<std::string> names;                // as values of the programs
  std::map<std::string, const Shape*> shape_of;  // a layout change may go through other shapes of a tensor
  std::set<std::string> seen;
  auto keep = [&](const Value* result, const spmd::Placement& placement) {
    const Shape& shape = *placement.global.shape;
    if (*shape_of.try_emplace(placement.name, &shape).first->second != shape) return;
    Kept kept{placement.name, Tensor::zeros(result->dtype(), bound_dims(shape, impl_->last_symbols))};
    for (size_t n = 0; n < impl_->last->size(); ++n)
      if (const Value* own = programs.of(impl_->here[n]).graph->find(result->name))
        (*impl_->last)[n]->store(own, kept.value.mutable_data());
    names.push_back(result->name);
    values.push_back(std::move(kept));
  };
  for (const auto& program : programs.programs)
    for (const auto& node : program->graph->nodes())
      for (const Value* result : node->outputs) {
        auto placement = result ? program->placements.find(result) : program->placements.end();
        if (placement == program->placements.end() || placement->second.sharding.is_partial()) continue;
        if (seen.insert(result->name).second) keep(result, placement->second);
      }
  impl_->on_all([&](size_t n) {
    for (size_t i = 0; i < values.size(); ++i)
      bring_parts(*impl_->ranks[n], programs, impl_->last_symbols, impl_->here, names[i],
                  values[i].value.mutable_data());
  });
  return values;
}

std::string machine_text_of_rank(const std::shared_ptr<const RankPrograms>& programs, int rank, const Symbols& symbols,
                                 const ExecutorOptions& options) {
  RankStates states;
  const int threads =
      team_size(options.threads_per_rank, options.machine_ranks > 0 ? options.machine_ranks : programs->mesh().size());
  RankState state(programs->mesh(), rank, threads, nullptr, states, device::make_device(options.device));
  return RankPlan(state, programs, symbols, {options.keep_all, options.overlap, options.prefetch}).text();
}

size_t peak_bytes_of_rank(const std::shared_ptr<const RankPrograms>& programs, int rank, const Symbols& symbols,
                          size_t limit) {
  RankStates states;
  RankState state(programs->mesh(), rank, 1, nullptr, states);
  RankPlan plan(state, programs, symbols, {});
  const size_t bytes = state.peak_bytes(plan.arena_bytes());
  if (limit > 0)
    device::MemoryLimit(limit).require_plan(bytes, [&] {
      std::vector<device::NamedBytes> pieces = plan.pieces();
      pieces.push_back({"weights", state.state_bytes()});
      return pieces;
    });
  return bytes;
}

}  // namespace tessera::runtime
