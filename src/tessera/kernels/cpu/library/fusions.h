#pragma once

#include "tessera/kernels/fusion.h"

/// What the CPU's kernels take over, one function for each kind of kernel. CpuLibrary asks them in turn.
namespace tessera::kernels {

/// Farther away in running order, a node would keep its operands for long.
inline constexpr size_t kMostDistance = 32;

/// The node alone, with its weight packed if that is worthwhile.
Fusion alone(const Node& node, const Surroundings& around);

/// A sum with what is scattered into zeros: it scatters into the other addend instead. Nullopt: it is something else.
std::optional<Fusion> fuse_scatter(const Node& sum, const Surroundings& around);

/// A product with the transpose of a weight: it reads the weight itself, if that can be packed in its own layout.
Fusion with_stored_weight(const Node& node, const Surroundings& around);

/// Adds the element-wise nodes that follow a product or convolution of floats, one after the other.
void add_followers(Fusion& fusion, const Node& root, const Surroundings& around);

/// The same for a product of integers, whose sums become floats, and perhaps integers again.
void add_followers_of_sums(Fusion& fusion, const Node& root, const Surroundings& around);

/// Whether a follower can read the operand beside the product's result: it is like the result, or has one value per
/// column or channel.
bool goes_with_result(const TensorDesc& operand, const TensorDesc& result, bool channels);

/// An element-wise node and those before it whose results these nodes read, and others only after them.
Fusion fuse_elementwise(const Node& last, const Surroundings& around);

/// Whether the kernel of element-wise nodes finds rows of consecutive elements in the view.
bool elementwise_takes_view(const Fusion& fusion, const View& view, const TypeOf& type);

/// See Library::block_use and Library::block_of.
BlockUse block_use(const Fusion& fusion, const TypeOf& type);
int64_t block_of(const TensorDesc& type);

/// See Library::view_kind and Library::view_by.
ViewKind view_kind(const Node& node);
std::optional<View> view_by(const Node& node, size_t result, const View& operand, const BoundValues& values);

}  // namespace tessera::kernels
