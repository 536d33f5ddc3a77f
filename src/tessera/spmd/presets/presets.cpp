#include "tessera/spmd/presets/presets.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/spmd/presets/registry.h"

namespace tessera::spmd {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {data_parallel_preset(), zero_preset(),     fsdp_preset(),
                                          context_preset(),       megatron_preset(), sequence_preset(),
                                          features_preset(),      expert_preset(),   pipeline_preset()};
  return all;
}

namespace {

/// Names of combinations of presets.
const std::map<std::string_view, std::string_view> kSeveral = {
    {"hsdp", "dp+fsdp"},                // stored split within a group, replicated across groups
    {"2d", "fsdp+megatron+features"}};  // weights and activations split over two axes (GSPMD)

std::string names() {
  std::string text;
  for (const Preset& preset : presets()) text += (text.empty() ? "" : ", ") + std::string(preset.name);
  return text;
}

std::string axes_of(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh.axes()) text += (text.empty() ? "" : ", ") + axis.name;
  return text.empty() ? "none" : text;
}

const Preset& preset_named(std::string_view name) {
  if (name == "ddp") name = "dp";
  if (name == "zero2") name = "zero1";  // an update of shards takes scattered gradients
  if (name == "zero3") name = "fsdp";
  for (const Preset& preset : presets())
    if (preset.name == name) return preset;
  fail("preset", "there is no preset '{}'; the presets are: {}", name, names());
}

}  // namespace

std::vector<PresetRequest> parse_presets(std::string_view text, const Mesh& mesh) {
  std::vector<PresetRequest> requests;
  size_t start = 0;
  while (start <= text.size()) {
    size_t end = std::min(text.find('+', start), text.size());
    std::string_view item = text.substr(start, end - start);
    start = end + 1;
    size_t colon = item.find(':');
    if (const auto several = kSeveral.find(item); several != kSeveral.end()) {
      for (PresetRequest& request : parse_presets(several->second, mesh)) requests.push_back(request);
      continue;
    }
    const Preset& preset = preset_named(item.substr(0, colon));
    std::optional<int> axis;
    if (colon != std::string_view::npos) {
      axis = mesh.find(item.substr(colon + 1));
      if (!axis)
        fail("preset", "'{}': the mesh has no axis '{}'; its axes are: {}", item, item.substr(colon + 1),
             axes_of(mesh));
    } else {
      for (std::string_view name : preset.axis_names)
        if (!axis) axis = mesh.find(name);
      if (!axis)
        fail("preset",
             "preset '{}' splits the axis '{}', which is not in the mesh (its axes are: {}); name one, as {}:{}",
             preset.name, preset.axis_names.front(), axes_of(mesh), preset.name,
             mesh.axes().empty() ? "x" : mesh.axes().front().name);
    }
    requests.push_back({&preset, AxisRef::whole(mesh.axes()[*axis])});
  }
  std::stable_partition(requests.begin(), requests.end(),
                        [](const PresetRequest& request) { return request.preset->splits_inputs; });
  return requests;
}

std::vector<PresetRequest> implied_presets(const Mesh& mesh, const std::vector<std::string>& used) {
  std::vector<PresetRequest> requests;
  for (const MeshAxis& axis : mesh.axes()) {
    const Preset* implied = nullptr;
    for (const Preset& preset : presets()) {
      // If several presets use an axis name by default, the name implies the first of them.
      const auto& names = preset.axis_names;
      if (!implied && preset.implied && std::find(names.begin(), names.end(), axis.name) != names.end())
        implied = &preset;
    }
    if (implied) {
      requests.push_back({implied, AxisRef::whole(axis)});
    } else if (axis.size > 1 && std::find(used.begin(), used.end(), axis.name) == used.end()) {
      std::string choices;
      for (const Preset& preset : presets())
        if (preset.name != "pipeline") choices += fmt::format(" `presets` {}:{}", preset.name, axis.name);
      fail("preset",
           "the axis '{}' implies no preset, so nothing would be split over it; give it one ({} ), annotate tensors "
           "with `annotations` 'NAME=[-,{}]', or place nodes with `places` 'NAME={}:0'",
           axis.name, choices, axis.name, axis.name);
    }
  }
  return requests;
}

}  // namespace tessera::spmd
