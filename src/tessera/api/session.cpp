#include "tessera/api/session.h"

#include <algorithm>
#include <functional>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/ir/pages.h"
#include "tessera/launch/engines.h"
#include "tessera/launch/flight_record.h"
#include "tessera/launch/handshake.h"

namespace tessera {
inline namespace v1 {

const std::vector<std::string>& devices() {
  return device::device_names();
}

namespace {

static_assert(kMostRankThreads == runtime::kMostRanksHere);

runtime::ExecutorOptions executor_options(const SessionOptions& options, const runtime::ProgramsForSizes& for_sizes,
                                          std::shared_ptr<runtime::StateStore> states,
                                          std::optional<launch::SameWeights>& weights) {
  runtime::ExecutorOptions result;
  result.states = std::move(states);
  result.for_sizes = for_sizes;
  result.threads_per_rank = options.threads_per_rank;
  result.device = options.device;
  result.keep_all = options.keep_all;
  result.profile = options.profile;
  result.overlap = options.overlap;
  if (options.prefetch < 1) fail("session", "prefetch is {}; it must be at least 1", options.prefetch);
  result.prefetch = options.prefetch;
  result.saves = options.checkpoints;
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
    if (result.memory_limit == 0 && result.machine_ranks > 1)
      result.memory_limit = machine_memory() / static_cast<size_t>(result.machine_ranks);
    result.loaded = [&weights](comm::Communicator& everyone) {
      if (weights) weights->compare(everyone);
    };
  }
  return result;
}

// What we compiled is right by a proof of ours; files may have been changed by anybody.
const Program& proved(const Program& program) {
  api::require_proof(program, program.impl().compiled ? ErrorKind::running : ErrorKind::user);
  return program;
}

/// What `call` returns; a run that fails leaves a record of what ranks did last.
template <typename Impl, typename Call>
auto recorded(const Impl& session, Call call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::running) throw;
    const std::string text = error.what();
    const size_t end = text.find("] ");  // an Error puts its stage there
    throw Error(ErrorKind::running, text.substr(1, end - 1),
                text.substr(end + 2) + launch::record_flights(session.flight_record, text, session.executor.flights()));
  }
}

}  // namespace

Session::Impl::Impl(const Program& program, const SessionOptions& options, std::shared_ptr<runtime::StateStore> states)
    : executor(proved(program).impl().programs,
               executor_options(options, program.impl().for_sizes, std::move(states), weights)),
      flight_record(options.flight_record),
      connection(options.connection) {
  if (!options.connection) return;
  const auto& programs = program.impl().programs;
  const std::vector<uint64_t> copies = launch::shake_hands(*options.connection->impl().everyone, *programs, version());
  if (std::adjacent_find(copies.begin(), copies.end(), std::not_equal_to<>()) != copies.end())
    weights.emplace(programs, options.connection->launch().rank, copies);
}

Session::Session(const Program& program, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(program, options,
                                   options.share_states ? options.share_states->impl_->executor.store() : nullptr)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Tensors Session::run(const Tensors& inputs) {
  return recorded(*impl_, [&] { return impl_->executor.run(inputs); });
}

Tensors Session::states() {
  return recorded(*impl_, [&] { return impl_->executor.states(); });
}

Tensors Session::states(const std::vector<std::string>& names) {
  return recorded(*impl_, [&] { return impl_->executor.states(names); });
}

void Session::set_states(const Tensors& states) {
  recorded(*impl_, [&] { impl_->executor.set_states(states); });
}

std::vector<int64_t> Session::peak_bytes(const Tensors& inputs) {
  auto bytes = recorded(*impl_, [&] { return impl_->executor.peak_bytes(impl_->executor.bind_symbols(inputs)); });
  return {bytes.begin(), bytes.end()};
}

int64_t Session::process_bytes() const {
  return static_cast<int64_t>(impl_->executor.process_bytes());
}

int Session::threads_per_rank() const {
  return impl_->executor.threads_per_rank();
}

std::vector<Session::Kept> Session::kept() {
  std::vector<Kept> all;
  for (auto& kept : impl_->executor.kept()) all.push_back({std::move(kept.name), std::move(kept.value)});
  return all;
}

}  // namespace v1
}  // namespace tessera
