#pragma once

#include <functional>

#include "mutants/trial.h"

namespace tessera::mutants {

/// Tries seeds in a process of its own, which may crash, hang or take too much memory: such a seed has escaped, and
/// another process goes on with the next. The n-th seed is seed_of(n); each one's outcome goes to `took`, which says
/// whether to go on.
void in_child(const std::function<uint64_t(uint64_t)>& seed_of, const std::string& mutator,
              const std::function<bool(uint64_t seed, const Outcome&)>& took);

}  // namespace tessera::mutants
