#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/launch.h"
#include "tessera/launch/same_weights.h"
#include "tessera/runtime/executor.h"

namespace tessera::launch {

/// A program on its ranks: threads of this process, or the processes of a connection, which agree first on what they
/// run (shake_hands, SameWeights).
class LoadedProgram {
 public:
  /// `connection`: null where all ranks are threads of this process; `options` then name the world. `version` of
  /// tessera. `flight_record`: a file for what ranks did last, written when a call fails; "": none. Throws a user error
  /// if the processes differ in what they are about to run.
  LoadedProgram(const std::shared_ptr<const runtime::RankPrograms>& programs, runtime::ExecutorOptions options,
                std::shared_ptr<Connection> connection, std::string_view version, std::string flight_record);

  /// Must not be moved: weights may be compared when the executor makes its first plan.
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  runtime::Executor& executor() { return *executor_; }
  const std::shared_ptr<Connection>& connection() const { return connection_; }

  /// Returns the result of `call` on the executor. A call that fails while running writes a flight record, which its
  /// error names.
  template <typename Call>
  auto recorded(Call call) {
    try {
      return call(*executor_);
    } catch (const runtime::RankFailure& failure) {
      if (failure.kind() != ErrorKind::running) throw;
      throw with_record(failure);
    }
  }

 private:
  Error with_record(const runtime::RankFailure& failure) const;

  std::shared_ptr<Connection> connection_;
  std::string flight_record_;
  std::optional<SameWeights> weights_;  // where ranks have read them from more than one file
  std::optional<runtime::Executor> executor_;
};

}  // namespace tessera::launch
