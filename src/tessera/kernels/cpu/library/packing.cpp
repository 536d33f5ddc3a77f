#include "tessera/kernels/packing.h"

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/extents.h"

namespace tessera::kernels {
namespace {

std::string key_of(const Attribute& attribute) {
  if (auto* integer = std::get_if<int64_t>(&attribute.value)) return fmt::format("{}={}", attribute.name, *integer);
  if (auto* text = std::get_if<std::string>(&attribute.value)) return fmt::format("{}={}", attribute.name, *text);
  if (auto* integers = std::get_if<std::vector<int64_t>>(&attribute.value))
    return fmt::format("{}={}", attribute.name, text_of(*integers));
  fail("kernel", "attribute '{}' is neither an integer, a string nor a list of integers", attribute.name);
}

}  // namespace

bool is_weight(const Value* value) {
  return value && value->kind == ValueKind::state && !value->changing;
}

std::optional<PackedLayout> packed_layout(const Node& node, const TensorDesc& weight) {
  const KernelEntry* entry = find_kernel(node.op_type, node.domain);
  return entry && entry->pack ? entry->pack(node, weight) : std::nullopt;
}

PackedLayout new_packed_layout(const Node& node, const TensorDesc& weight, size_t bytes,
                               std::initializer_list<std::string_view> attributes) {
  PackedLayout layout;
  layout.bytes = bytes;
  layout.op_type = "Packed" + node.op_type;
  layout.use_attributes = {{"packs", node.op_type, {}},
                           {"weight_dtype", std::string(name_of(weight.dtype)), {}},
                           {"weight_dims", weight.dims, {}}};
  layout.key = node.op_type + ";";
  for (std::string_view name : attributes)
    if (const Attribute* attribute = node.find_attribute(name)) layout.key += key_of(*attribute) + ";";
  return layout;
}

TensorDesc packed_weight_desc(const Node& node) {
  const TensorDesc desc{dtype_named(node.get_string("weight_dtype", "")), node.get_ints("weight_dims")};
  if (!desc.present())
    fail("kernel", "{}: attributes 'weight_dtype' and 'weight_dims' must describe what was packed", node.label());
  return desc;
}

std::string packed_operator(const Node& node) {
  return node.get_string("packs", node.op_type);
}

}  // namespace tessera::kernels
