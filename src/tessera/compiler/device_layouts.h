#pragma once

#include <map>
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

/// The layout of a list of devices, or the nearest if there is none.
struct MeshLayout {
  ListedLayout layout;
  bool exact = true;
};

/// As many shards of each factor as the list says, over axes of the mesh that have as many devices; else none. It is
/// where its holders have a common place. `devices`: the mesh's, by rank.
ListedLayout nearest_layout(const DeviceList& list, const Mesh& mesh, const std::vector<int64_t>& devices);

/// The layout that a node needs of an operand or result.
struct Form {
  std::string layout;          ///< as annotations are written; "": the tensor has none
  std::vector<AxisRef> axes;   ///< that split it
  std::vector<PlacedAxis> at;  ///< where its holders are
};
/// The layouts that nodes need, by their tensors' names.
using Forms = std::map<const Node*, std::map<std::string, Form>>;
/// Null: the node says nothing of that tensor.
const Form* form_in(const Forms& forms, const Node* node, const std::string& tensor);
/// Whether both are the same place, in any order.
bool same_place(const std::vector<PlacedAxis>& a, const std::vector<PlacedAxis>& b);

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
