#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/cost/machine_model.h"

namespace tessera::predict {

/// The names of the machines that come with Tessera.
std::vector<std::string> known_machines();

/// The machine of that name, or of a machine file. Throws a user error if there is neither, or if the file is invalid.
MachineModel load_machine(const std::string& name_or_path);

/// Multiplies the bandwidth of levels of links by these factors, by name: in the mesh's links and in the machine's
/// measured collectives, whose engine is the name. Throws a user error for a level that neither has.
void scale_links(Topology& topology, MachineModel& machine, const std::map<std::string, double>& factors);

}  // namespace tessera::predict
