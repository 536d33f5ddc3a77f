#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/mesh/device_lists.h"
#include "tessera/onnx/device_annotations.h"

/// Translates ONNX's sharding specs, which list devices, to layouts over a mesh.
namespace tessera::compiler {

/// The devices that hold each shard of a spec; `otherwise` if it lists none.
DeviceList list_of(const ShardingSpec& spec, const std::vector<int64_t>& otherwise);
/// A whole tensor on each of these devices.
DeviceList whole_on(const std::vector<int64_t>& devices);

/// The layout of a list of devices, or the closest one if there is none.
struct MeshLayout {
  ListedLayout layout;
  bool exact = true;
};

/// Splits each factor into as many shards as the list has, over mesh axes with as many devices; no split if there are
/// none. It is placed where its holders have a common place. `devices`: those of the mesh, by rank.
ListedLayout nearest_layout(const DeviceList& list, const Mesh& mesh, const std::vector<int64_t>& devices);

/// The layout that a node needs of an operand or result.
struct Form {
  std::string layout;          ///< as annotations are written; "": the tensor has none
  std::vector<AxisRef> axes;   ///< axes that split it
  std::vector<PlacedAxis> at;  ///< the place of its holders
};
/// The layouts that nodes need, by tensor name.
using Forms = std::map<const Node*, std::map<std::string, Form>>;
/// Null if the node does not annotate that tensor.
const Form* form_in(const Forms& forms, const Node* node, const std::string& tensor);
/// Whether both are the same place; the order does not matter.
bool same_place(const std::vector<PlacedAxis>& a, const std::vector<PlacedAxis>& b);

/// A layout as annotations are written.
struct LayoutText {
  std::string text;   ///< "[8{dp}, -]"
  bool exact = true;  ///< false: it has blocks instead of shards that are distributed in turn
};

/// `layout` is that of the spec, for a tensor of that shape.
LayoutText layout_text(const ShardingSpec& spec, const ListedLayout& layout, const Shape& shape, const Mesh& mesh);
/// The same in blocks for a tensor of unknown rank, "[{dp}, ...]"; nullopt if the spec counts axes from both ends.
std::optional<LayoutText> layout_text_for_any_rank(const ShardingSpec& spec, const ListedLayout& layout,
                                                   const Mesh& mesh);

}  // namespace tessera::compiler
