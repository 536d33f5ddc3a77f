#include <algorithm>

#include "tessera/base/checked.h"
#include "tessera/runtime/executor_impl.h"

namespace tessera::runtime {
namespace {

template <typename Step>
std::exception_ptr failure_of(const Step& step) {
  try {
    step();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

bool is_none(const std::vector<std::exception_ptr>& failures) {
  return std::count(failures.begin(), failures.end(), nullptr) == std::ssize(failures);
}

}  // namespace

PlanSet& Executor::Impl::plan(const Symbols& symbols) {
  team.join(*programs);
  if (PlanSet* known = plans.find(symbols)) return *known;
  const std::shared_ptr<const RankPrograms> chosen = programs_for(programs, symbols, options.for_sizes);
  team.join(*chosen);
  PlanSet made;
  const std::lock_guard planning(share->planning);
  try {
    made = made_plans(chosen, symbols);
    compare_loaded();
  } catch (...) {
    made.clear();
    forget_unused(chosen);
    throw;
  }
  note_planned(made, symbols);
  PlanSet& kept = plans.add(symbols, std::move(made));
  // Processes must drop the same plans, but each counts the bytes of its own.
  const bool counts_bytes = !options.connected;
  while (plans.size() > std::max<size_t>(1, options.kept_plans) ||
         (counts_bytes && plans.size() > 1 && plans.bytes() > options.kept_plan_bytes))
    drop_oldest_plans();
  return kept;
}

// Once ranks have loaded the programs' weights, further plans need memory for arenas only.
PlanSet Executor::Impl::made_plans(const std::shared_ptr<const RankPrograms>& chosen, const Symbols& symbols) {
  PlanSet made(team.size());
  const PlanSet* like = plans.latest_of(chosen);
  LoadingRoom& room = store->weights()->room();
  const auto within = room.within(memory);
  const SizedRanks sized = like ? SizedRanks() : require_room_to_load(chosen, symbols);
  std::vector<std::exception_ptr> failures(team.size());
  team.on_all([&](size_t n) {
    const auto loading = room.load();
    failures[n] = failure_of([&] {
      if (like) made[n] = RankPlan::rebound(*(*like)[n], symbols);
      if (!made[n]) made[n] = std::make_unique<RankPlan>(team[n], chosen, symbols, bind_options());
    });
  });
  if (is_none(failures))
    failures.front() = failure_of([&] {
      require_memory(made, symbols);
      if (!room_to_save) room_to_save = memory.hold(bytes_to_save(), kCopiesToSave, arenas_of(made));
    });
  agree_on(failures);
  return made;
}

// Refuses plans that do not fit before anything is loaded. The plans that run reuse the kernels of the result.
Executor::Impl::SizedRanks Executor::Impl::require_room_to_load(const std::shared_ptr<const RankPrograms>& chosen,
                                                                const Symbols& symbols) {
  const SizedRank::Options as_here{team.threads(), options.device, bind_options()};
  SizedRanks sized(team.size());
  std::vector<std::exception_ptr> failures(team.size());
  team.on_all([&](size_t n) {
    failures[n] = failure_of([&] {
      sized[n] = std::make_unique<SizedRank>(team[n], chosen, symbols, as_here, memory);
      team[n].weights().note_load_peak(sized[n]->state.weights().load_peak());
    });
  });
  if (is_none(failures)) failures.front() = failure_of([&] { require_room_for(sized, *chosen, symbols); });
  agree_on(failures);
  return sized;
}

// The same for this process. The limit counts what ranks hold already.
void Executor::Impl::require_room_for(const SizedRanks& sized, const RankPrograms& chosen,
                                      const Symbols& symbols) const {
  ProcessMemory all, already;
  for (size_t run = 0; run < runs_at_once(); ++run)
    all.add_outputs(output_bytes(chosen, symbols), room_to_save || run > 0 ? 0 : bytes_to_save());
  for (size_t n = 0; n < sized.size(); ++n) {
    ProcessMemory::Need need = ProcessMemory::need_of(
        sized[n]->state, runs_at_once() * team[n].memory().bytes_to_run(sized[n]->plan.machine()));
    // What another executor has loaded counts in the limit, and is shared.
    std::erase_if(need.weights, [&](const auto& weight) { return need.shares && has_loaded(weight.first); });
    all.add(need);
    already.add(ProcessMemory::need_of(team[n], 0));
  }
  all.add_running(other_arenas());
  for (size_t n = 0; n < team.size(); ++n) all.add_weights(team[n]);
  const size_t to_come = all.peak() - std::min(all.peak(), already.states());
  store->weights()->room().set_budget(checked_add(memory.held(), to_come, "the ranks"));
  if (is_planned(symbols)) return;
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

// Refuses arenas and outputs that exceed the limit together with what the ranks hold already.
void Executor::Impl::require_memory(const PlanSet& made, const Symbols& symbols) const {
  if (is_planned(symbols)) return;
  for (size_t n = 0; n < made.size(); ++n)
    team[n].memory().require_room(made[n]->machine(), [&] { return made[n]->pieces(); });
  ProcessMemory needed = needed_to_run(made, symbols, room_to_save ? 0 : bytes_to_save());
  needed.add_running(other_arenas());
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

void Executor::Impl::agree_on(const std::vector<std::exception_ptr>& failures) {
  team.on_all_in_agreement([&](size_t n) { return failures[n]; }, {"plan", ""});
}

void Executor::Impl::compare_loaded() {
  if (options.connected && options.loaded && !std::exchange(compared, true))
    unlike = failure_of([&] {
      team.on_all_in_agreement(
          [&](size_t n) { return failure_of([&] { options.loaded(team[n].communicators().everyone()); }); },
          {"weights", "", true});
    });
  if (unlike) std::rethrow_exception(unlike);
}

void Executor::Impl::drop_oldest_plans() {
  PlanSet& oldest = plans.oldest();
  if (&oldest == last) last = nullptr;
  if (&oldest == uncommitted) commit();
  const auto of = oldest.front()->programs();
  plans.drop(oldest);
  forget_unused(of);
}

void Executor::Impl::forget_unused(const std::shared_ptr<const RankPrograms>& of) {
  if (of != programs && !plans.latest_of(of)) team.forget(*of);
}

// Bytes of the copies of states in this process.
size_t Executor::Impl::bytes_to_save() const {
  size_t bytes = 0;
  if (options.saves)
    for (int rank : team.here()) bytes += saved_bytes(*programs, rank);
  return bytes;
}

// Bytes of the arenas while these plans run.
size_t Executor::Impl::arenas_of(const PlanSet& made) const {
  size_t bytes = 0;
  for (size_t n = 0; n < made.size(); ++n)
    bytes = checked_add(bytes, team[n].memory().bytes_to_run(made[n]->machine()), "the ranks' arenas");
  return bytes;
}

size_t Executor::Impl::all_arenas_with(const PlanSet& set) const {
  // Another team may have grown for larger sizes.
  return other_arenas() + std::max(group().arenas.load(), runs_at_once() * arenas_of(set));
}

void Executor::Impl::note_planned(const PlanSet& made, const Symbols& symbols) {
  constexpr size_t kMostPlanned = 1024;
  Impl& all = group();
  all.most_running = std::max(all.most_running.load(), needed_to_run(made, symbols, bytes_to_save()).peak());
  const size_t before = all.arenas, most = std::max(before, runs_at_once() * arenas_of(made));
  all.arenas = most;  // first, so that other_arenas() of another team is never too large
  share->arenas += most - before;
  if (runs_at_once() == 1) return;
  if (all.planned.size() == kMostPlanned) all.planned.clear();
  all.planned.insert(symbols);
}

// What a run of these plans needs beside what the ranks hold.
ProcessMemory Executor::Impl::needed_to_run(const PlanSet& made, const Symbols& symbols, size_t copies) const {
  ProcessMemory needed;
  for (size_t run = 0; run < runs_at_once(); ++run) {
    needed.add_outputs(output_bytes(*made.front()->programs(), symbols), run == 0 ? copies : 0);
    needed.add_running(arenas_of(made));
  }
  return needed;
}

void Executor::Impl::add_held(ProcessMemory& all) const {
  for (size_t n = 0; n < team.size(); ++n) all.add(ProcessMemory::need_of(team[n], 0));
}

}  // namespace tessera::runtime
