#include "tessera/kernels/library.h"

#include <algorithm>

#include "tessera/kernels/cpu/elementwise/group.h"
#include "tessera/kernels/cpu/library/fusions.h"

namespace tessera::kernels {
namespace {

/// Whether the root's kernel can stride as the view does, of which its entry says that it may be strided. `operand`: -1
/// is the result.
bool can_stride(const KernelEntry& entry, const Fusion& fusion, int operand, const View& view) {
  if (operand < 0 && fusion.packed) return false;  // a packed form makes rows
  return entry.takes_strided ? entry.takes_strided(*fusion.root, operand, view) : view.strides.back() == 1;
}

class CpuLibrary : public Library {
 public:
  const KernelEntry* find(std::string_view op_type, std::string_view domain) const override {
    return find_kernel(op_type, domain);
  }
  std::unique_ptr<Kernel> prepare(const KernelEntry& entry, const PrepareContext& context) const override {
    return prepare_kernel(entry, context);
  }

  Fusion fuse(const Node& root, const Surroundings& around) const override {
    if (auto scatter = fuse_scatter(root, around)) return std::move(*scatter);
    Fusion fusion = with_stored_weight(root, around);
    add_followers_of_sums(fusion, root, around);
    add_followers(fusion, root, around);
    return fusion;
  }
  Fusion fuse_backward(const Node& last, const Surroundings& around) const override {
    return fuse_elementwise(last, around);
  }

  BlockUse block_use(const Fusion& fusion, const TypeOf& type) const override {
    return kernels::block_use(fusion, type);
  }
  int64_t block_of(const TensorDesc& type) const override { return kernels::block_of(type); }

  ViewKind view_kind(const Node& node) const override { return kernels::view_kind(node); }
  std::optional<View> view_by(const Node& node, size_t index, const View& operand,
                              const BoundValues& values) const override {
    return kernels::view_by(node, index, operand, values);
  }
  bool takes_view(const Fusion& fusion, const Node& reader, size_t index, const View& view,
                  const TypeOf& type) const override {
    if (can_group(reader) && can_group(*fusion.root)) return elementwise_takes_view(fusion, view, type);
    if (&reader != fusion.root) return false;
    const KernelEntry* entry = find_kernel(reader.op_type, reader.domain);
    if (!entry || std::count(entry->strided.begin(), entry->strided.end(), static_cast<int>(index)) == 0) return false;
    return kernels::view_kind(reader) != ViewKind::none ||  // kernels that copy views can stride anyway
           can_stride(*entry, fusion, static_cast<int>(index), view);
  }
  bool can_give_views(const Fusion& fusion) const override {
    const KernelEntry* entry = find_kernel(fusion.root->op_type, fusion.root->domain);
    return entry && entry->strides_result && fusion.followers.empty();
  }
  bool gives_view(const Fusion& fusion, const View& view) const override {
    const KernelEntry* entry = find_kernel(fusion.root->op_type, fusion.root->domain);
    return can_give_views(fusion) && can_stride(*entry, fusion, -1, view);
  }
};

}  // namespace

const Library& cpu_library() {
  static const CpuLibrary library;
  return library;
}

}  // namespace tessera::kernels
