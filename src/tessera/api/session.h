#pragma once

#include <memory>
#include <string>

#include "tessera/launch.h"
#include "tessera/runtime/executor.h"
#include "tessera/tessera.h"

namespace tessera {
inline namespace v1 {

struct Session::Impl {
  runtime::Executor executor;
  std::string flight_record;
  std::shared_ptr<Connection> connection;

  Impl(const Program& program, const SessionOptions& options);
};

}  // namespace v1
}  // namespace tessera
