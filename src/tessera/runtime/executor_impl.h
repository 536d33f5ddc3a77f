#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/base/error_kind.h"
#include "tessera/base/keep.h"
#include "tessera/ir/hash.h"
#include "tessera/runtime/agreement.h"
#include "tessera/runtime/executor.h"
#include "tessera/runtime/process_memory.h"
#include "tessera/runtime/sized_rank.h"
#include "tessera/runtime/tensor_pool.h"
#include "tessera/runtime/worker.h"

namespace tessera::runtime {

inline uint64_t hash_of(const Executor::Tensors& inputs) {
  Hash hash;
  for (const auto& [name, tensor] : inputs) {
    hash.add(name);
    hash.add(tensor);
  }
  return hash.value();
}

/// Throws a user error unless an output fits into the caller's memory for it.
inline void require_fits(const std::string& output, const Tensor& memory, DType dtype, const Dims& dims) {
  if (memory.dtype != dtype || memory.dims != dims)
    fail("outputs",
         "the output '{}' is {} [{}], but the memory given for it is for {} [{}]; give a tensor of that type", output,
         name_of(dtype), fmt::join(dims, ", "), name_of(memory.dtype), fmt::join(memory.dims, ", "));
  memory.require_whole(output);
}

/// The ranks of this process, their threads, and the plans that they keep.
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
  std::shared_ptr<const void> room_to_save;  ///< of the limit, for copies of the states, with `saves`
  /// Memory for outputs, where the ranks that make them can reach.
  TensorPool pool{memory, [this](size_t bytes) { return world->allocate(here.front(), bytes, "an output"); }};
  uint64_t calls = 0;
  size_t most_running = 0;               ///< bytes that a run needs beside states, at most
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
    on_all([&](size_t n) { ranks[n]->communicators().join_groups(of); });
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
          ranks[n]->communicators().flight().give_up();
          {
            std::lock_guard lock(mutex);
            if (!first) first = std::current_exception(), message = error.what();
          }
          world->abort(here[n], error.what(), error_kind(error));
          ranks[n]->queues().settle();
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
    on_all([&](size_t n) { errors[n] = agree(ranks[n]->communicators().everyone(), task(n), given); });
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

  template <typename Step>
  static std::exception_ptr failure_of(const Step& step) {
    try {
      step();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  bind::Options bind_options() const { return {options.keep_all, options.overlap, options.prefetch}; }

  // Refuses what does not fit before anything of it is loaded. The plans that run take over the kernels of the result.
  using SizedRanks = std::vector<std::unique_ptr<SizedRank>>;
  SizedRanks require_room_to_load(const std::shared_ptr<const RankPrograms>& chosen, const Symbols& symbols) {
    const SizedRank::Options as_here{threads, options.device, bind_options()};
    SizedRanks sized(ranks.size());
    std::vector<std::exception_ptr> failures(ranks.size());
    on_all([&](size_t n) {
      failures[n] = failure_of([&] {
        sized[n] = std::make_unique<SizedRank>(*ranks[n], chosen, symbols, as_here, memory);
        ranks[n]->weights().note_load_peak(sized[n]->state.weights().load_peak());
      });
    });
    if (std::count(failures.begin(), failures.end(), nullptr) == std::ssize(failures))
      failures.front() = failure_of([&] { require_room_for(sized, *chosen, symbols); });
    on_all_in_agreement([&](size_t n) { return failures[n]; }, {"plan", ""});
    return sized;
  }

  // Likewise, of this process; what ranks hold already counts in the limit.
  void require_room_for(const SizedRanks& sized, const RankPrograms& chosen, const Symbols& symbols) const {
    ProcessMemory all, already;
    all.add_outputs(output_bytes(chosen, symbols), room_to_save ? 0 : bytes_to_save());
    for (size_t n = 0; n < sized.size(); ++n) {
      all.add(ProcessMemory::need_of(sized[n]->state, ranks[n]->memory().bytes_to_run(sized[n]->plan.machine())));
      already.add(ProcessMemory::need_of(*ranks[n], 0));
    }
    for (const auto& rank : ranks) all.add_weights(*rank);
    const size_t to_come = all.peak() - std::min(all.peak(), already.states());
    store->weights()->room().set_budget(checked_add(memory.held(), to_come, "the ranks"));
    memory.require_plan(
        to_come,
        [&] {
          std::vector<device::NamedBytes> pieces;
          for (const auto& rank : sized)
            for (device::NamedBytes& piece : rank->plan.pieces()) pieces.push_back(std::move(piece));
          all.add_to(pieces);
          return pieces;
        },
        pool.idle());
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
    const PlanSet* like = latest_plan_of(chosen);
    try {
      LoadingRoom& room = store->weights()->room();
      const auto within = room.within(memory);
      const SizedRanks sized = like ? SizedRanks() : require_room_to_load(chosen, symbols);
      std::vector<std::exception_ptr> failures(ranks.size());
      on_all([&](size_t n) {
        const auto loading = room.load();
        failures[n] = failure_of([&] {
          if (like) made[n] = RankPlan::rebound(*(*like)[n], symbols);
          if (!made[n]) made[n] = std::make_unique<RankPlan>(*ranks[n], chosen, symbols, bind_options());
        });
      });
      if (std::count(failures.begin(), failures.end(), nullptr) == std::ssize(failures))
        failures.front() = failure_of([&] {
          require_memory(made, symbols);
          if (!room_to_save) room_to_save = memory.hold(bytes_to_save(), kCopiesToSave, arenas_of(made));
        });
      on_all_in_agreement([&](size_t n) { return failures[n]; }, {"plan", ""});
      if (options.connected && options.loaded && !std::exchange(compared, true))
        unlike = failure_of([&] {
          on_all_in_agreement(
              [&](size_t n) { return failure_of([&] { options.loaded(ranks[n]->communicators().everyone()); }); },
              {"weights", "", true});
        });
      if (unlike) std::rethrow_exception(unlike);
    } catch (...) {
      made.clear();
      forget_unused(chosen);
      throw;
    }
    most_running = std::max(most_running, needed_to_run(made, symbols, bytes_to_save()).peak());
    PlanSet& kept = plans.emplace(symbols, Cached{std::move(made), ++calls}).first->second.plans;
    if (plans.size() > std::max<size_t>(1, options.kept_plans)) drop_oldest_plan();
    return kept;
  }

  // Bytes of the copies of states, in this process.
  size_t bytes_to_save() const {
    size_t bytes = 0;
    if (options.saves)
      for (int rank : here) bytes += saved_bytes(*programs, rank);
    return bytes;
  }

  // The bytes of this process' arenas when these plans run.
  size_t arenas_of(const PlanSet& made) const {
    size_t bytes = 0;
    for (size_t n = 0; n < made.size(); ++n)
      bytes = checked_add(bytes, ranks[n]->memory().bytes_to_run(made[n]->machine()), "the ranks' arenas");
    return bytes;
  }

  // Memory for a run's outputs: the caller's, if it can be written directly. Where there is none, processes that wait
  // for this one are told.
  Tensors take_outputs(const PlanSet& set, const Symbols& symbols, const Tensors& wanted, bool is_direct) {
    Tensors outputs;
    try {
      const RankPrograms& chosen = *set.front()->programs();
      const spmd::Program& program = chosen.of(here.front());
      const size_t arenas = arenas_of(set);
      for (size_t i = 0; i < program.outputs.size(); ++i) {
        const std::string& name = program.outputs[i].name;
        const RankPrograms::Output whole = chosen.output(i);
        const DType dtype = whole.value->dtype();
        const Dims dims = bound_dims(*whole.placement->global.shape, symbols);
        const auto given = wanted.find(name);
        if (given != wanted.end()) require_fits(name, given->second, dtype, dims);
        Tensor& output = outputs[name];
        if (output.data) continue;
        output = given != wanted.end() && is_direct
                     ? given->second
                     : pool.take(dtype, dims, fmt::format("the output '{}'", name), arenas);
      }
      for (const auto& given : wanted)
        if (!outputs.contains(given.first)) fail("outputs", "the model has no output '{}'", given.first);
      return outputs;
    } catch (...) {
      if (here.size() < static_cast<size_t>(world->size()))
        on_all([failed = std::current_exception()](size_t) { std::rethrow_exception(failed); });
      throw;
    }
  }

  // What a run of these plans needs beside what the ranks hold.
  ProcessMemory needed_to_run(const PlanSet& made, const Symbols& symbols, size_t copies) const {
    ProcessMemory needed;
    needed.add_outputs(output_bytes(*made.front()->programs(), symbols), copies);
    needed.add_running(arenas_of(made));
    return needed;
  }

  // What this process holds at its peak, in runs of any plan that was made.
  size_t process_bytes() const {
    ProcessMemory all;
    all.add_running(most_running);
    for (const auto& rank : ranks) all.add(ProcessMemory::need_of(*rank, 0));
    return all.peak();
  }

  // That arenas and outputs are within the limit, beside what the ranks hold already.
  void require_memory(const PlanSet& made, const Symbols& symbols) const {
    for (size_t n = 0; n < made.size(); ++n)
      ranks[n]->memory().require_room(made[n]->machine(), [&] { return made[n]->pieces(); });
    const ProcessMemory needed = needed_to_run(made, symbols, room_to_save ? 0 : bytes_to_save());
    memory.require_plan(
        needed.peak(),
        [&] {
          std::vector<device::NamedBytes> pieces;
          for (const auto& plan : made)
            for (device::NamedBytes& piece : plan->pieces()) pieces.push_back(std::move(piece));
          needed.add_to(pieces);
          return pieces;
        },
        pool.idle());
  }
};

}  // namespace tessera::runtime
