#include <thread>

#include "tessera/inspect.h"
#include "tessera/kernels/versions.h"
#include "tessera/spmd/presets/presets.h"

namespace tessera {
inline namespace v1 {
MachineInfo machine() {
  MachineInfo info;
  info.instruction_sets = kernels::instruction_sets();
  info.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (const spmd::Preset& preset : spmd::presets()) {
    std::string axes;
    for (std::string_view axis : preset.axis_names) axes += (axes.empty() ? "" : ", ") + std::string(axis);
    info.presets.push_back({std::string(preset.name), axes, std::string(preset.description)});
  }
  return info;
}

}  // namespace v1
}  // namespace tessera
