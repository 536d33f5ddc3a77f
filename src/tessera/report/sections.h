#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tessera/report/inputs.h"

/// The sections of a report, a file each. Each returns HTML; one that has nothing to show says what would give it.
namespace tessera::report {

/// Rewrites the names of settings in backticks for the reader.
using Words = std::function<std::string(std::string_view)>;

/// Model, mesh and the figures that matter most.
std::string summary_section(const Inputs& inputs);
/// Tracks over time, and how the time of each is divided.
std::string timeline_section(const Inputs& inputs, const Words& words);
/// Times by class of ranks, the bound, and what a step waited for.
std::string times_section(const Inputs& inputs, const Words& words);
std::string collectives_section(const Inputs& inputs, const Words& words);
std::string memory_section(const Inputs& inputs, const Words& words);
/// Blocks of the model: how each tensor is split, and why.
std::string blocks_section(const Inputs& inputs, const Words& words);
/// The plans that a search compared.
std::string alternatives_section(const Inputs& inputs, const Words& words);
/// Notes, warnings, and the files.
std::string notes_section(const Inputs& inputs);

/// "dp=2,tp=4" of {"dp": 2, "tp": 4}
std::string mesh_text(const Json& mesh);

}  // namespace tessera::report
