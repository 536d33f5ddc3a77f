#pragma once

#include <string>

#include "tessera/report/inputs.h"

namespace tessera::report {

/// What rank 0 waits for and why, its communications one kind after the other, and what became of collectives beside
/// products. Empty if no input says so.
std::string overlap_html(const Inputs& inputs);

}  // namespace tessera::report
