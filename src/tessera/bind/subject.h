#pragma once

#include <memory>

#include "tessera/bind/rank.h"
#include "tessera/bind/schedule.h"
#include "tessera/spmd/program.h"

namespace tessera::bind {

struct Options {
  bool keep_all = false;     ///< no buffer is reused, so every value can be read after a run
  bool overlap = true;       ///< run independent steps while a communication is under way (schedule.h)
  int prefetch = kUnderWay;  ///< communications that may be under way at once
};

/// The subject of binding: a program and the rank that runs it.
struct Subject {
  std::shared_ptr<Rank> rank;
  const spmd::Program& program;  ///< the rank's own, which must outlive the binding
  Options options;

  const Graph& graph() const { return *program.graph; }
  const device::Device& device() const { return rank->device(); }
};

}  // namespace tessera::bind
