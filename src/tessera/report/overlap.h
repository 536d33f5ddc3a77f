#pragma once

#include <string>

#include "tessera/report/inputs.h"

namespace tessera::report {

/// What rank 0 waits for and why, its communications by kind, and what became of collectives beside products. Empty if
/// no input says so.
std::string overlap_html(const Inputs& inputs);
/// Whether it has measured times.
bool has_measured_overlap(const Inputs& inputs);

}  // namespace tessera::report
