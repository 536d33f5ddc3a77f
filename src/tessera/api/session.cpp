#include "tessera/api/session.h"

#include <numeric>

#include "tessera/api/engines.h"
#include "tessera/api/handshake.h"
#include "tessera/api/impl.h"

namespace tessera {
inline namespace v1 {

namespace {

runtime::ExecutorOptions executor_options(const SessionOptions& options) {
  runtime::ExecutorOptions result;
  result.threads_per_rank = options.threads_per_rank;
  result.keep_all = options.keep_all;
  result.profile = options.profile;
  result.world.timeout = options.timeout;
  if (options.connection) {
    result.connected = options.connection->impl().world;
    result.machine_ranks = options.connection->launch().local_size;
  }
  return result;
}

// What we compiled is right by a proof of ours; files may have been changed by anybody.
const Program& proved(const Program& program) {
  api::require_proof(program, program.impl().compiled ? ErrorKind::running : ErrorKind::user);
  return program;
}

}  // namespace

Session::Impl::Impl(const Program& program, const SessionOptions& options)
    : executor(proved(program).impl().programs, executor_options(options)) {
  if (!options.connection) return;
  const Launch& launch = options.connection->launch();
  std::vector<int> all(launch.size);
  std::iota(all.begin(), all.end(), 0);
  api::shake_hands(*options.connection->impl().world->join(launch.rank, all), *program.impl().programs, version());
}

Session::Session(const Program& program, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(program, options)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Tensors Session::run(const Tensors& inputs) {
  return impl_->executor.run(inputs);
}

std::vector<int64_t> Session::peak_bytes(const Tensors& inputs) {
  auto bytes = impl_->executor.peak_bytes(impl_->executor.bind_symbols(inputs));
  return {bytes.begin(), bytes.end()};
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
