#include "tessera/api/session.h"

#include <algorithm>
#include <functional>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/ir/pages.h"
#include "tessera/launch/engines.h"
#include "tessera/launch/flight_record.h"
#include "tessera/launch/gather_times.h"
#include "tessera/runtime/run_profile.h"

namespace tessera {
inline namespace v1 {

const std::vector<std::string>& devices() {
  return device::device_names();
}

namespace {

static_assert(kMostRankThreads == runtime::kMostRanksHere);

runtime::ExecutorOptions executor_options(const SessionOptions& options) {
  runtime::ExecutorOptions result;
  result.threads_per_rank = options.threads_per_rank;
  result.device = options.device;
  result.keep_all = options.keep_all;
  result.profile = options.profile;
  result.overlap = options.overlap;
  if (options.prefetch < 1) fail("session", "prefetch is {}; it must be at least 1", options.prefetch);
  result.prefetch = options.prefetch;
  result.spin = options.spin;
  result.saves = options.checkpoints;
  result.kept_plans = options.kept_plans;
  result.kept_plan_bytes = options.kept_plan_bytes;
  if (options.concurrent_runs < 1)
    fail("session", "concurrent_runs is {}; it must be at least 1", options.concurrent_runs);
  result.concurrent_runs = options.concurrent_runs;
  result.memory_limit = options.memory_limit;
  result.world.timeout = options.timeout;
  result.grace = std::min(result.grace, options.timeout);
  if (options.abandoned)
    result.abandoned = [file = options.flight_record, told = options.abandoned](const std::string& message,
                                                                                const auto& flights) {
      told(message + launch::record_flights(file, message, flights));
    };
  if (options.connection) {
    result.connected = options.connection->impl().world;
    result.machine_ranks = options.connection->launch().local_size;
    result.local_rank = options.connection->launch().local_rank;
    if (result.memory_limit == 0 && result.machine_ranks > 1)
      result.memory_limit = machine_memory() / static_cast<size_t>(result.machine_ranks);
  }
  return result;
}

// `share`: what the session's programs share; null: nothing.
std::shared_ptr<launch::LoadedProgram> load(const compiler::CompiledProgram& program, const SessionOptions& options,
                                            std::shared_ptr<runtime::StateStore> states,
                                            std::shared_ptr<runtime::ProcessShare> share = nullptr) {
  // A program that we compiled without a proof is a bug; files may have been edited.
  program.require_proof(program.compiled ? ErrorKind::running : ErrorKind::user);
  runtime::ExecutorOptions asked = executor_options(options);
  asked.states = std::move(states);
  asked.share = std::move(share);
  asked.for_sizes = program.for_sizes;
  return std::make_shared<launch::LoadedProgram>(program.programs, std::move(asked), options.connection, version(),
                                                 options.flight_record);
}

}  // namespace

std::shared_ptr<launch::LoadedProgram> Session::Impl::loaded(std::string_view what) const {
  if (program) return program;
  const parts::Runner::Loaded latest = runner->latest();
  if (!latest.ranks)
    fail("session", "'{}' is compiled when it runs, and has not run, so there are no {} yet; run it first",
         model.string(), what);
  return latest.ranks;
}

Session::Session(const Program& program, const SessionOptions& options) : impl_(std::make_shared<Impl>()) {
  std::shared_ptr<runtime::StateStore> states;
  std::shared_ptr<runtime::ProcessShare> share;
  if (options.share_states) {
    const runtime::Executor& other = api::of(options.share_states->impl_).loaded("states")->executor();
    states = other.store();
    share = other.share();
    if (options.memory_limit != 0 && options.memory_limit != share->limit.bytes())
      fail("session",
           "memory_limit is {}, but {} in the session whose states this one shares, and the limit is for both; give "
           "both the same, or this one none",
           options.memory_limit, share->limit.bytes());
  }
  impl_->made_of = program;
  impl_->program = load(program.impl(), options, std::move(states), std::move(share));
}

Session::Session(const Model& model, const Mesh& mesh, const Plan& plan, const CompileOptions& compile_options,
                 const SessionOptions& options)
    : impl_(std::make_shared<Impl>()) {
  if (options.share_states)
    fail("session", "a session of a model cannot share states; compile() the model, and make a session of the program");
  impl_->model = model.path();
  impl_->plan = plan;
  impl_->plan.states.clear();
  const Model stepping = plan.states.empty() ? model : model.with_states(plan.states);
  const auto share =
      options.connection ? nullptr : std::make_shared<runtime::ProcessShare>(executor_options(options).memory_limit);
  SessionOptions loading = options;
  if (!stepping.shared_impl()->is_one_program()) loading.concurrent_runs = 1;  // its runs take turns
  // Keeps the program alive that it shares states with.
  const auto load_program = [options = std::move(loading), share, sharing = compile_options.sharing](
                                const compiler::CompiledProgram& program, std::shared_ptr<runtime::StateStore> states) {
    return load(program, options, std::move(states), share);
  };
  impl_->runner =
      std::make_unique<parts::Runner>(stepping.shared_impl(), api::program_options(mesh, impl_->plan, compile_options),
                                      load_program, options.connection != nullptr);
}

Session::~Session() {
  // Its threads cannot be waited for in a process that was forked from theirs.
  if (impl_ && impl_->process != ::getpid()) keep_for_good(std::move(impl_));
}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  const Session before(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}

Tensors Session::Impl::run(const Tensors& inputs, const RunLimits& limits, Tensors outputs) const {
  runtime::RunLimits asked{.stop = limits.stop, .deadline = std::nullopt};
  if (limits.deadline.count() > 0) asked.deadline = runtime::RunLimits::Clock::now() + limits.deadline;
  if (runner) return runner->run(inputs, asked, std::move(outputs));
  return program->recorded(
      [&](runtime::Executor& executor) { return executor.run(inputs, asked, std::move(outputs)); });
}

Tensors Session::run(const Tensors& inputs, const RunLimits& limits) {
  return api::of(impl_).run(inputs, limits);
}

void Session::run_into(const Tensors& inputs, Tensors& outputs, const RunLimits& limits) {
  api::of(impl_).run(inputs, limits, outputs);
}

std::future<Tensors> Session::run_async(Tensors inputs, const RunLimits& limits) {
  api::of(impl_);
  return std::async(std::launch::async, [impl = impl_, inputs = std::move(inputs), limits]() -> Tensors {
    return impl->run(inputs, limits);
  });
}

std::optional<Program> Session::prepare(const Tensors& inputs) {
  const Impl& impl = api::of(impl_);
  const parts::Runner::Loaded loaded =
      impl.runner ? impl.runner->prepare(inputs) : parts::Runner::Loaded{nullptr, impl.program};
  if (!loaded.ranks) return std::nullopt;
  if (!impl.runner)
    impl.program->recorded([&](runtime::Executor& executor) { executor.prepare(executor.bind_symbols(inputs)); });
  return impl.runner ? api::program_of(*loaded.program, impl.model, impl.plan) : *impl.made_of;
}

std::vector<Program> Session::programs() const {
  const Impl& impl = api::of(impl_);
  std::vector<Program> programs;
  if (impl.runner)
    for (const parts::Runner::Loaded& ran : impl.runner->ran())
      programs.push_back(api::program_of(*ran.program, impl.model, impl.plan));
  return programs;
}

Tensors Session::states() {
  return api::of(impl_).loaded("states")->recorded([&](runtime::Executor& executor) { return executor.states(); });
}

Tensors Session::states(const std::vector<std::string>& names) {
  return api::of(impl_).loaded("states")->recorded([&](runtime::Executor& executor) { return executor.states(names); });
}

void Session::set_states(const Tensors& states) {
  api::of(impl_).loaded("states")->recorded([&](runtime::Executor& executor) { executor.set_states(states); });
}

std::vector<int64_t> Session::peak_bytes(const Tensors& inputs) {
  const Impl& impl = api::of(impl_);
  const std::vector<size_t> bytes =
      impl.runner ? impl.runner->peak_bytes(inputs) : impl.program->recorded([&](runtime::Executor& executor) {
        return executor.peak_bytes(executor.bind_symbols(inputs));
      });
  return {bytes.begin(), bytes.end()};
}

int64_t Session::process_bytes() const {
  return static_cast<int64_t>(api::of(impl_).loaded("bytes")->executor().process_bytes());
}

int Session::threads_per_rank() const {
  return api::of(impl_).loaded("ranks")->executor().threads_per_rank();
}

Profile Session::profile() const {
  const std::shared_ptr<launch::LoadedProgram> program = api::of(impl_).loaded("times");
  std::vector<runtime::RankTimes> times = program->executor().times();
  if (const auto& connection = program->connection(); connection && !times.empty())
    times = launch::gather_times(*connection->impl().world, connection->launch().rank, times[0]);
  return runtime::profile_of(times);
}

std::vector<Session::Kept> Session::kept() {
  std::vector<Kept> all;
  for (auto& kept : api::of(impl_).loaded("kept tensors")->executor().kept())
    all.push_back({std::move(kept.name), std::move(kept.value)});
  return all;
}

}  // namespace v1
}  // namespace tessera
