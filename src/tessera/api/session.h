#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tessera/launch.h"
#include "tessera/launch/same_weights.h"
#include "tessera/runtime/executor.h"
#include "tessera/tessera.h"

namespace tessera {
inline namespace v1 {

struct Session::Impl {
  runtime::Executor executor;
  std::string flight_record;
  std::shared_ptr<Connection> connection;
  std::optional<launch::SameWeights> weights;  ///< where ranks have read them from more than one file

  /// `states`: of another session; null: the session has its own.
  Impl(const Program& program, const SessionOptions& options, std::shared_ptr<runtime::StateStore> states);
};

}  // namespace v1
}  // namespace tessera
