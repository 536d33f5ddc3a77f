#include "tessera/launch/loaded_program.h"

#include <algorithm>
#include <functional>

#include "tessera/launch/engines.h"
#include "tessera/launch/flight_record.h"
#include "tessera/launch/handshake.h"
#include "tessera/runtime/run_limits.h"

namespace tessera::launch {

LoadedProgram::LoadedProgram(const std::shared_ptr<const runtime::RankPrograms>& programs,
                             runtime::ExecutorOptions options, std::shared_ptr<Connection> connection,
                             std::string_view version, std::string flight_record)
    : connection_(std::move(connection)), flight_record_(std::move(flight_record)) {
  if (connection_)
    options.loaded = [this](comm::Communicator& everyone) {
      if (weights_) weights_->compare(everyone);
    };
  executor_.emplace(programs, options);
  if (!connection_) return;
  const std::vector<uint64_t> copies = shake_hands(*connection_->impl().everyone, *programs, version);
  if (std::adjacent_find(copies.begin(), copies.end(), std::not_equal_to<>()) != copies.end())
    weights_.emplace(programs, connection_->launch().rank, copies);
}

Error LoadedProgram::with_record(const runtime::RankFailure& failure) const {
  if (failure.stage() == runtime::RunLimits::kStage) return failure;  // it was meant to end
  return Error(failure.kind(), failure.stage(),
               std::string(failure.message()) + record_flights(flight_record_, failure.what(), failure.flights()));
}

}  // namespace tessera::launch
