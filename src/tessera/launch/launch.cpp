#include "tessera/launch.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/comm/hosts.h"
#include "tessera/launch/engines.h"
#include "tessera/launch/flight_record.h"
#include "tessera/launch/launchers.h"
#include "tessera/launch/place.h"
#include "tessera/launch/processes.h"
#include "tessera/runtime/agreement.h"

namespace tessera {
inline namespace v1 {

std::optional<Launch> Launch::find(std::string_view engine) {
  // A spawned process says so only here.
  std::optional<Launch> found = launch::find_spawned();
  if (!found) return launch::find_launched(engine);
  if (engine != "auto" && engine != found->engine)
    fail("launch", "tessera started this process as a rank of engine {}, which is not {}", found->engine, engine);
  if (found->size < 1 || found->rank < 0 || found->rank >= found->size)
    fail("launch", "the environment says that this is rank {} of {}; ranks count from 0", found->rank, found->size);
  return found;
}

std::vector<EngineInfo> engines() {
  std::vector<EngineInfo> all;
  for (const launch::Connector& engine : launch::engines())
    all.push_back({std::string(engine.name), std::string(engine.description), engine.missing()});
  return all;
}

namespace {

void say_the_same(comm::Communicator& everyone, const std::string& words) {
  if (const std::exception_ptr error = runtime::agree(everyone, nullptr, {"launch", words, true}))
    std::rethrow_exception(error);
}

}  // namespace

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::~Connection() = default;

std::shared_ptr<Connection> Connection::make(const Launch& launch, const ConnectOptions& options) {
  const auto& all = launch::engines();
  const auto engine = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == launch.engine; });
  if (engine == all.end() || !engine->connect) {
    std::vector<std::string_view> names;
    for (const launch::Connector& one : all)
      if (one.connect) names.push_back(one.name);
    fail("launch", "engine '{}' does not connect processes; these do: {}", launch.engine, fmt::join(names, ", "));
  }
  constexpr std::chrono::milliseconds kMinute{60'000};
  const comm::WorldOptions waits{.timeout = options.timeout,
                                 .join_timeout = options.join_timeout.value_or(std::max(options.timeout, kMinute)),
                                 .spin = options.spin};
  std::shared_ptr<comm::World> world = engine->connect(launch, waits);
  std::vector<int> ranks(static_cast<size_t>(world->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto everyone = world->join(launch.rank, ranks);
  try {
    say_the_same(*everyone,
                 fmt::format("tessera {}{}", TESSERA_VERSION, options.share_memory ? " with shared memory" : ""));
  } catch (const Error& error) {  // the other ranks may not have noticed it yet
    world->abort(launch.rank, error.what(), error.kind());
    throw;
  }
  if (options.share_memory && launch.engine != "processes")  // which do already
    world = comm::share_memory_within_hosts(std::move(world), launch.rank, waits);
  Launch complete = launch;
  complete.size = world->size();
  std::shared_ptr<Connection> connection(
      new Connection(std::make_unique<Impl>(Impl{complete, std::move(world), std::move(everyone)})));
  try {
    const std::vector<int64_t> hosts = connection->from_all(comm::this_host()),
                               ranks = connection->from_all(launch.local_rank),
                               sizes = connection->from_all(launch.local_size);
    const launch::Place place = launch::place_of(launch.rank, hosts, ranks, sizes);
    connection->impl_->launch.local_rank = place.local_rank;
    connection->impl_->launch.local_size = place.local_size;
  } catch (const Error& error) {
    connection->impl_->world->abort(launch.rank, error.what(), error.kind());
    throw;
  }
  return connection;
}

const Launch& Connection::launch() const {
  return impl_->launch;
}

void Connection::require_same(std::string_view what, std::string_view words) {
  say_the_same(*impl_->everyone, fmt::format("{} '{}'", what, words));
}

int64_t Connection::from_first(int64_t value) {
  impl_->everyone->run({.kind = comm::Kind::broadcast, .dtype = DType::int64, .in = &value, .out = &value, .count = 1});
  return value;
}

std::vector<int64_t> Connection::from_all(int64_t value) {
  const auto size = static_cast<size_t>(impl_->launch.size);
  const std::vector<int64_t> one_each(size, 1);
  KeptIfThrown<std::vector<int64_t>> room;  // all ranks' values, then our own, to which a library may still write
  std::vector<int64_t>& all = *room;
  all.resize(size + 1);
  all.back() = value;
  impl_->everyone->run({.kind = comm::Kind::all_gather,
                        .dtype = DType::int64,
                        .in = &all.back(),
                        .out = all.data(),
                        .counts = one_each});
  return {all.begin(), all.end() - 1};
}

bool Connection::first_has_heard() {
  constexpr std::chrono::milliseconds kPatience{1000};
  return impl_->launch.rank == 0 || impl_->world->first_has_heard(kPatience);
}

std::string Connection::waits_at() const {
  const int rank = impl_->launch.rank;
  const comm::FlightLog log = comm::log_of(rank, *impl_->world->flight(rank));
  return comm::is_waiting(log) ? comm::place_of(log) : "";
}

std::string Connection::last_words(std::string_view why, const std::string& flight_record) const {
  const int rank = impl_->launch.rank;
  const comm::FlightLog log = comm::log_of(rank, *impl_->world->flight(rank));
  const std::string place = comm::place_of(log);
  if (place.empty()) return "";
  return fmt::format("rank {} was {}{}", rank, place, launch::record_flights(flight_record, why, {log}));
}

void Connection::abort(std::string_view message, ErrorKind kind) {
  impl_->world->abort(impl_->launch.rank, message, kind);
}

}  // namespace v1
}  // namespace tessera
