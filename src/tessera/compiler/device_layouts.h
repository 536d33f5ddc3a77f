#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/mesh/device_lists.h"
#include "tessera/onnx/device_annotations.h"

/// What ONNX's sharding specs, which list devices, mean as layouts over a mesh.
namespace tessera::compiler {

/// Who holds each shard that a spec speaks of; `otherwise` if it lists no device.
DeviceList list_of(const ShardingSpec& spec, const std::vector<int64_t>& otherwise);
/// A whole tensor on each of these devices.
DeviceList whole_on(const std::vector<int64_t>& devices);

/// The layout of a list of devices, or one that is near if there is none.
struct MeshLayout {
  ListedLayout layout;
  bool exact = true;
};

/// As many shards of each factor as the list says, over axes of the mesh that have as many devices; else none. It is
/// where its holders have a common place. `devices`: the mesh's, by rank.
ListedLayout nearest_layout(const DeviceList& list, const Mesh& mesh, const std::vector<int64_t>& devices);

/// A layout as annotations are written.
struct LayoutText {
  std::string text;   ///< "[8{dp}, -]"
  bool exact = true;  ///< false: it has blocks where shards should be dealt out in turn
};

/// `layout` is the spec's, of a tensor of that shape.
LayoutText layout_text(const ShardingSpec& spec, const ListedLayout& layout, const Shape& shape, const Mesh& mesh);
/// The same in blocks for a tensor of any rank, "[{dp}, ...]"; nullopt if the spec's axes count from both ends.
std::optional<LayoutText> layout_text_for_any_rank(const ShardingSpec& spec, const ListedLayout& layout,
                                                   const Mesh& mesh);

}  // namespace tessera::compiler
