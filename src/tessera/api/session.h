#pragma once

#include "tessera/runtime/executor.h"
#include "tessera/tessera.h"

namespace tessera {
inline namespace v1 {

struct Session::Impl {
  runtime::Executor executor;
  std::string flight_record;

  Impl(const Program& program, const SessionOptions& options);
};

}  // namespace v1
}  // namespace tessera
