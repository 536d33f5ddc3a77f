#include "tessera/forecast/measure.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/forecast/flush_denormals.h"
#include "tessera/forecast/kernel_estimates.h"
#include "tessera/ir/collective.h"
#include "tessera/runtime/sized_rank.h"
#include "tessera/sim/predict.h"

namespace tessera::forecast {
namespace {

using bind::Location;
using Clock = std::chrono::steady_clock;
using Where = Location::Where;
using Times = RoundTimes;

// Memory of these bytes holds 0.01 in float32 and bfloat16 and 1.06 in float16: nothing overflows or is denormal.
constexpr int kFloatByte = 0x3c;

// A rank's plan, and after place() the memory in which its kernels run.
class Replay {
 public:
  Replay(const runtime::DryRun& run, int rank, int threads)
      : sized_(run.programs, rank, run.symbols,
               runtime::SizedRank::Options{
                   threads, "cpu", {run.options.keep_all, run.options.overlap, run.options.prefetch}}),
        works_(sized_.plan.works()) {}

  const std::vector<bind::StepWork>& works() const { return works_; }

  // Allocates all memory: for weights at most `most` bytes.
  void place(size_t most) {
    arena_ = memory(machine().arena_bytes);
    size_t weights = 0;
    for (const auto& step : machine().steps) {
      for (size_t i = 0; i < step->inputs.size(); ++i) {
        grow(step->inputs[i], step->operands[i]);
        if (step->kernel && is_planned(step->inputs[i])) weights += aligned(step->operands[i].bytes());
      }
      for (size_t i = 0; i < step->outputs.size(); ++i) grow(step->outputs[i], step->results[i]);
    }
    weights_ = memory(std::min(weights, most), kFloatByte);
    for (const auto& [key, bytes] : sizes_) others_[key] = memory(bytes, integers_.contains(key) ? 0 : kFloatByte);
    Ready inputs;  // the caller gives new ones in each run
    for (const bind::HostCopy& copy : machine().inputs)
      inputs.cleared.emplace_back(address(copy.place, {}), copy.bytes);
    ready_.push_back(std::move(inputs));
    for (const bind::Enqueued& it : *machine().actions) {
      if (it.action.phase == bind::Phase::run) prepare(static_cast<size_t>(it.action.task));
      if (it.action.phase == bind::Phase::wait) receive(*machine().steps[static_cast<size_t>(it.action.task)]);
    }
  }

  // By step: how many collectives come before it in a run.
  std::vector<size_t> segments() const {
    std::vector<size_t> segments(works_.size());
    size_t segment = 0;
    for (const Ready& ready : ready_) {
      segment += ready.meets ? 1 : 0;
      if (ready.kernel) segments[ready.step] = segment;
    }
    return segments;
  }

  // Runs the kernels in order, and `meet` where they wait for a collective; `times`, by step, gets the seconds since
  // the kernel before it. A kernel that rejects what it reads (an index computed from a communication, say) has no
  // time, and does not run again.
  void run(Times& times, const std::function<void()>& meet) {
    Clock::time_point last = Clock::now();
    for (Ready& ready : ready_) {
      if (ready.meets) {
        meet();
        last = Clock::now();
      }
      for (const auto& [at, bytes] : ready.cleared) std::memset(at, 0, bytes);
      if (!ready.cleared.empty()) last = Clock::now();
      if (!ready.kernel) continue;
      try {
        ready.kernel->run({ready.in, ready.out, ready.scratch});
      } catch (const Error&) {
        ready.kernel = nullptr;
        times[ready.step].reset();
        continue;
      }
      const Clock::time_point now = Clock::now();
      times[ready.step] = std::chrono::duration<double>(now - last).count();
      last = now;
    }
  }

 private:
  // A kernel's run; or memory to clear, which the caller or other ranks would fill.
  struct Ready {
    size_t step = 0;
    kernels::Kernel* kernel = nullptr;
    std::vector<const void*> in = {};
    std::vector<void*> out = {};
    void* scratch = nullptr;
    std::vector<std::pair<std::byte*, size_t>> cleared = {};
    bool meets = false;  // the other members of a collective
  };
  using Key = std::pair<Where, size_t>;

  const bind::MachineProgram& machine() const { return sized_.plan.machine(); }

  static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
  static Tensor memory(size_t bytes, int byte = 0) {
    Tensor made = Tensor::zeros(DType::uint8, {static_cast<int64_t>(bytes)});
    std::memset(made.mutable_data(), byte, bytes);  // touches each page, too
    return made;
  }
  // A weight that the plan counts but does not hold.
  static bool is_planned(const Location& place) { return place.where == Where::fixed && !place.address; }

  void grow(const Location& place, const kernels::TensorDesc& desc) {
    if (place.where == Where::none || place.where == Where::arena || place.where == Where::fixed) return;
    size_t& bytes = sizes_[{place.where, place.index}];
    bytes = std::max(bytes, place.skip + desc.bytes());
    if (desc.present() && !is_float(desc.dtype)) integers_.insert({place.where, place.index});
  }

  void prepare(size_t s) {
    const bind::Step& step = *machine().steps[s];
    Ready ready{s, step.kernel.get()};
    for (size_t i = 0; i < step.inputs.size(); ++i) ready.in.push_back(address(step.inputs[i], step.operands[i]));
    for (size_t i = 0; i < step.outputs.size(); ++i) ready.out.push_back(address(step.outputs[i], step.results[i]));
    if (step.scratch >= 0) ready.scratch = arena() + machine().offsets[static_cast<size_t>(step.scratch)];
    ready_.push_back(std::move(ready));
  }

  // Nothing is received, and the memory may hold bits of other values. Integers may be indices, so they are cleared.
  void receive(const bind::Step& step) {
    Ready received;
    received.meets = step.info.members > 1 && !traits_of(*collective_of_op(step.info.op)).message;
    for (size_t i = 0; i < step.outputs.size(); ++i)
      if (step.results[i].present() && !is_float(step.results[i].dtype))
        received.cleared.emplace_back(address(step.outputs[i], step.results[i]), step.results[i].bytes());
    if (received.meets || !received.cleared.empty()) ready_.push_back(std::move(received));
  }

  std::byte* arena() { return arena_.mutable_data(); }

  std::byte* address(const Location& place, const kernels::TensorDesc& desc) {
    switch (place.where) {
      case Where::none:
        return nullptr;
      case Where::arena:
        return arena() + machine().offsets[place.index] + place.skip;
      case Where::fixed:
        if (place.address) return static_cast<std::byte*>(const_cast<void*>(place.address)) + place.skip;
        return weight(desc);
      default:
        return others_.at({place.where, place.index}).mutable_data() + place.skip;
    }
  }

  // The next piece of the weights' memory; when it is used up, from its beginning again.
  std::byte* weight(const kernels::TensorDesc& desc) {
    const size_t bytes = aligned(desc.bytes());
    if (bytes > weights_.bytes) return spare_.emplace_back(memory(bytes, kFloatByte)).mutable_data();
    if (weight_at_ + bytes > weights_.bytes) weight_at_ = 0;
    std::byte* at = weights_.mutable_data() + weight_at_;
    if (!is_float(desc.dtype) && bits_of(desc.dtype) >= 32) std::memset(at, 0, bytes);  // they may be indices
    weight_at_ += bytes;
    return at;
  }

  runtime::SizedRank sized_;
  std::vector<bind::StepWork> works_;
  std::map<Key, size_t> sizes_;
  std::set<Key> integers_;
  Tensor arena_, weights_;
  std::map<Key, Tensor> others_;
  std::vector<Tensor> spare_;
  size_t weight_at_ = 0;
  std::vector<Ready> ready_;
};

// Ranks that wait for each other go on when the slowest of them has come: of each segment between collectives, the
// times of the team that took longest.
Times slowest(const std::vector<Times>& teams, const std::vector<size_t>& segments) {
  std::map<size_t, std::vector<double>> totals;  // by segment, of the teams
  for (size_t t = 0; t < teams.size(); ++t)
    for (size_t s = 0; s < segments.size(); ++s) {
      std::vector<double>& of = totals.try_emplace(segments[s], teams.size(), 0.0).first->second;
      of[t] += teams[t][s].value_or(0);
    }
  Times times(segments.size());
  for (size_t s = 0; s < segments.size(); ++s) {
    const std::vector<double>& of = totals.at(segments[s]);
    times[s] = teams[static_cast<size_t>(std::max_element(of.begin(), of.end()) - of.begin())][s];
  }
  return times;
}

// Calls `body` in a thread for each team, and `fails` in one whose call throws; throws one such error in the end.
void on_teams(int teams, const std::function<void(int team)>& body, const std::function<void()>& fails) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(teams));
  std::vector<std::thread> threads;
  for (int team = 0; team < teams; ++team)
    threads.emplace_back([&, team] {
      try {
        body(team);
      } catch (...) {
        errors[static_cast<size_t>(team)] = std::current_exception();
        fails();
      }
    });
  for (std::thread& each : threads) each.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

std::map<std::string, MachineModel::Kernel> measure_kernels(const runtime::DryRun& run, int rank,
                                                            const std::map<std::string, MachineModel::Kernel>& known,
                                                            const MeasureLimits& limits) {
  const int threads = runtime::threads_of_rank(*run.programs, run.options);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int ranks =
      run.options.machine_ranks > 0 ? run.options.machine_ranks : static_cast<int>(run.programs->mesh().size());
  const int teams = std::clamp(cores / threads, 1, ranks);
  const std::string suffix = sim::condition(threads, teams);

  std::vector<size_t> segments;
  std::vector<Times> times(static_cast<size_t>(teams)), rounds;
  std::optional<KernelEstimates> estimates;
  std::barrier begin(teams);
  std::atomic<bool> more = true;
  // Whether measuring goes on after a round. `started`: when the series did, whose rounds are `rounds`.
  auto goes_on = [&, series = 0](Clock::time_point& started) mutable {
    const auto count = static_cast<int>(rounds.size());
    const double passed = std::chrono::duration<double>(Clock::now() - started).count();
    if (count < limits.most_rounds && (count < limits.least_rounds || passed < limits.seconds)) return true;
    estimates->add_series(rounds);
    rounds.clear();
    started = Clock::now();
    return ++series < limits.most_series && !estimates->is_settled();
  };
  const auto measure = [&](int team) {
    omp_set_num_threads(threads);
    flush_denormals(threads);
    Replay replay(run, rank, threads);
    std::vector<cost::KernelWork> works(replay.works().begin(), replay.works().end());
    for (cost::KernelWork& work : works)
      if (!work.signature.empty()) work.signature += suffix;
    if (std::none_of(works.begin(), works.end(),
                     [&](const auto& work) { return KernelEstimates::is_wanted(work, known); }))
      return;
    replay.place(limits.memory / static_cast<size_t>(teams));
    Times& own = times[static_cast<size_t>(team)];
    own.resize(works.size());
    if (team == 0) {
      estimates.emplace(std::move(works), known);
      segments = replay.segments();
    }
    Clock::time_point started = Clock::now();
    for (bool counts = false; more; counts = true) {
      begin.arrive_and_wait();
      replay.run(own, [&] { begin.arrive_and_wait(); });
      begin.arrive_and_wait();
      if (team == 0 && counts && more) {
        rounds.push_back(slowest(times, segments));
        if (!goes_on(started)) more = false;
      }
      begin.arrive_and_wait();
    }
    begin.arrive_and_drop();  // a team may have begun another round when one has failed
  };
  on_teams(teams, measure, [&] {
    more = false;
    begin.arrive_and_drop();
  });
  return estimates ? estimates->found() : std::map<std::string, MachineModel::Kernel>();
}

std::function<void()> kernels_of(const runtime::DryRun& run, int rank) {
  const int threads = runtime::threads_of_rank(*run.programs, run.options);
  omp_set_num_threads(threads);
  auto replay = std::make_shared<Replay>(run, rank, threads);
  replay->place(MeasureLimits{}.memory);
  return [replay, times = Times(replay->works().size())]() mutable { replay->run(times, [] {}); };
}

}  // namespace tessera::forecast
