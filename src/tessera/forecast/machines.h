#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/cost/machine_model.h"

namespace tessera::forecast {

/// The names of the machines that come with Tessera.
std::vector<std::string> known_machines();

/// The machine of that name, or of a machine file. Throws a user error if there is neither, or if the file is invalid.
MachineModel load_machine(const std::string& name_or_path);

/// Multiplies bandwidths by these factors: by name, of the mesh's levels of links; by engine, of the machine's measured
/// collectives. Throws a user error for a name that is neither.
void scale_links(Topology& topology, MachineModel& machine, const std::map<std::string, double>& factors);

}  // namespace tessera::forecast
