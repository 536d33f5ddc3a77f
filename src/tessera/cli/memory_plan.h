#pragma once

#include <string>

#include "tessera/tessera.h"

namespace tessera::cli {

/// Writes what a rank holds over time as a trace of counters (the Trace Event Format, which Perfetto shows): one event
/// per line, and one microsecond per operation, since a plan knows no times. A user error if the file cannot be
/// written.
void write_memory_plan(const Program& program, int64_t rank, const std::string& path);

}  // namespace tessera::cli
