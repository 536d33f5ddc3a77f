#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/spmd/decide.h"

namespace tessera::spmd {

/// What a preset sees, and where it writes. A preset only writes annotations.
struct PresetContext {
  const Graph& graph;
  const Layout& layout;
  const Hints& hints;
  AxisRef axis;
  std::string by;  ///< "preset megatron"
  std::vector<Annotation>& annotations;
  std::vector<std::string>& warnings;
  std::vector<std::string>& notes;

  void annotate(const Value* value, Sharding sharding) { annotations.push_back({value, std::move(sharding), by}); }
};

struct Preset {
  std::string_view name;
  std::vector<std::string_view> axis_names;  ///< a mesh axis of such a name is what it splits by default
  bool implied = false;                      ///< an axis of such a name asks for it where nothing else is said
  std::string_view description;
  void (*apply)(PresetContext&) = nullptr;
  /// Adds to warnings and notes what is to be said of the outcome; null: nothing is.
  void (*review)(const PresetContext&, const Decisions&) = nullptr;
};

/// All presets, in the order in which `tessera info` lists them.
const std::vector<Preset>& presets();

/// A preset on an axis of the mesh.
struct PresetRequest {
  const Preset* preset = nullptr;
  AxisRef axis;
};

/// Reads "dp+megatron:x" for a mesh: each name takes its own usual axis or the one named after the colon. Throws a user
/// error for an unknown preset (listing those there are) or axis.
std::vector<PresetRequest> parse_presets(std::string_view text, const Mesh& mesh);

/// The presets that the axes' names imply. Throws a user error for an axis of more than one rank whose name implies
/// nothing, listing what it could be given; but not for those in `used`, of which something else is asked.
std::vector<PresetRequest> implied_presets(const Mesh& mesh, const std::vector<std::string>& used = {});

}  // namespace tessera::spmd
