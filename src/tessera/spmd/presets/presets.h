#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// A preset's input and output. A preset only writes annotations.
struct PresetContext {
  const Graph& graph;
  const Layout& layout;
  const Storage& storage;
  const Hints& hints;
  AxisRef axis;
  std::string by;  ///< "preset megatron"
  std::vector<Annotation>& annotations;
  std::vector<std::string>& warnings;
  std::vector<std::string>& notes;

  void annotate(const Value* value, Sharding sharding) { annotations.push_back({value, std::move(sharding), by}); }
};

/// The states that a preset stores split over its axis, each along its first dimension that is long enough.
enum class Stores {
  nothing,
  optimizer,   ///< optimizer states
  everything,  ///< all states that the graph updates, and all parameters
};

struct Preset {
  std::string_view name;
  std::vector<std::string_view> axis_names;  ///< by default it splits over a mesh axis of such a name
  bool implied = false;  ///< an axis of such a name implies it if there are no presets or annotations
  std::string_view description;
  void (*apply)(PresetContext&) = nullptr;
  /// Adds warnings and notes about the outcome; may be null.
  void (*review)(const PresetContext&, const Decisions&) = nullptr;
  Stores stores = Stores::nothing;
  bool splits_inputs = false;  ///< it is applied before the others, which keep what it splits
};

/// All presets, in the order in which `tessera info` lists them.
const std::vector<Preset>& presets();

/// A preset on an axis of the mesh.
struct PresetRequest {
  const Preset* preset = nullptr;
  AxisRef axis;
};

/// Reads "dp+megatron:x" for a mesh: each preset takes its usual axis or the one after the colon. Those that split
/// inputs come first. Throws a user error for an unknown axis or preset (which lists all presets).
std::vector<PresetRequest> parse_presets(std::string_view text, const Mesh& mesh);

/// The presets that the axes' names imply. Throws a user error, which lists the choices, for an axis of more than one
/// rank whose name implies nothing; but not for axes in `used`, which the plan uses otherwise.
std::vector<PresetRequest> implied_presets(const Mesh& mesh, const std::vector<std::string>& used = {});

}  // namespace tessera::spmd
