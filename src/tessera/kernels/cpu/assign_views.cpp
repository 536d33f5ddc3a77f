#include "tessera/kernels/cpu/assign_views.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/axes.h"
#include "tessera/kernels/cpu/elementwise_group.h"
#include "tessera/kernels/cpu/view.h"

namespace tessera::kernels {
namespace {

/// The elements of small integers that are the same in every run.
std::optional<std::vector<int64_t>> constant_ints(const Value* value) {
  if (value->kind == ValueKind::constant) return value->data.to_int64();
  if (value->kind == ValueKind::expression) return constants_of(*value->content);
  return std::nullopt;
}

class Assignment {
 public:
  Assignment(std::vector<NodeGroup>& groups, const std::set<const Value*>& kept,
             const std::map<const Value*, int64_t>& blocked, const DescOf& desc_of)
      : groups_(groups), kept_(kept), blocked_(blocked), desc_of_(desc_of), dropped_(groups.size(), false) {
    for (size_t g = 0; g < groups.size(); ++g) {
      group_of_[groups[g].root] = g;
      for (const Follower& follower : groups[g].followers) group_of_[follower.node] = g;
    }
  }

  std::map<const Value*, Placed> run(bool whole_only) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (dropped_[g]) continue;
      if (!whole_only) transpose_result(groups_[g]);
      dropped_[g] = make_views(groups_[g], whole_only);
    }
    size_t g = 0;
    std::erase_if(groups_, [&](const NodeGroup&) { return dropped_[g++]; });
    return std::move(views_);
  }

 private:
  const KernelEntry* entry_of(const Node& node) const { return find_kernel(node.op_type, node.domain); }

  // A result that only a Transpose reads is made as that one lies.
  void transpose_result(const NodeGroup& group) {
    const KernelEntry* entry = entry_of(*group.root);
    const Value* result = group.outputs.empty() ? nullptr : group.outputs[0];
    if (!entry || !entry->strides_result || !group.followers.empty()) return;
    if (!result || result->uses.size() != 1 || kept_.contains(result)) return;
    const Node& node = *result->uses[0].node;
    auto reader = group_of_.find(&node);
    if (!node.is("Transpose") || !node.domain.empty() || reader == group_of_.end()) return;
    // Along the view that the Transpose would be, each stride is the result's dimension of the same number.
    const TensorDesc desc = desc_of_(result), read = desc_of_(node.outputs[0]);
    Dims axes(desc.dims.size());
    for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
    const View view = transposed(node, {desc.dims, axes, 0});
    if (view.dims != read.dims || axes.empty() || view.strides.back() != axes.back()) return;
    Dims strides(axes.size());
    const Dims dense = dense_strides(read.dims);
    for (size_t d = 0; d < axes.size(); ++d) strides[view.strides[d]] = dense[d];
    views_[result] = {node.outputs[0], 0, strides};
    dropped_[reader->second] = true;
  }

  // Whether all results of the group are views that their readers take.
  bool make_views(const NodeGroup& group, bool whole_only) {
    const Node& node = *group.root;
    if (!group.followers.empty() || !makes_view(node)) return false;
    const Value* operand = node.inputs[0];
    if (blocked_.contains(operand)) return false;
    Placed base{operand, 0, {}};
    View view = view_of(desc_of_(operand));
    if (auto placed = views_.find(operand); placed != views_.end()) {
      base = placed->second;
      view.offset = base.offset;
      if (!base.strides.empty()) view.strides = base.strides;
    }
    std::vector<View> results;
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      auto result = view_by(node, r, view);
      if (!result) return false;
      if (!is_whole(*result, base.base) && (whole_only || !accepts(node.outputs[r], *result))) return false;
      results.push_back(std::move(*result));
    }
    for (size_t r = 0; r < results.size(); ++r)
      views_[node.outputs[r]] = {base.base, results[r].offset, results[r].is_dense() ? Dims{} : results[r].strides};
    return true;
  }

  bool is_whole(const View& view, const Value* base) const {
    return view.offset == 0 && view.is_dense() && count_of(view.dims) == desc_of_(base).count();
  }

  bool makes_view(const Node& node) const {
    const KernelEntry* entry = entry_of(node);
    return entry && (entry->view || (node.domain.empty() && (node.is("Transpose") || node.is("Split") ||
                                                             node.is("Slice") || node.is("Expand"))));
  }

  /// Result `index` of a node for which makes_view() holds, in the memory where `operand` views operand 0.
  std::optional<View> view_by(const Node& node, size_t index, const View& operand) const {
    const Value* result = node.outputs[index];
    if (!result) return std::nullopt;
    const Dims dims = desc_of_(result).dims;
    std::optional<View> view;
    if (node.is("Transpose")) {
      view = transposed(node, operand);
    } else if (node.is("Expand")) {
      view = expanded(node, operand, dims);
    } else if (node.is("Split")) {
      view = part(node, index, operand, dims);
    } else if (node.is("Slice")) {
      view = slice(node, operand);
    } else {
      // Checked here, since no kernel will run.
      if (count_of(operand.dims) != count_of(dims))
        fail("bind", "{}: {} elements cannot take the shape {} = {}; check the input shapes", node.label(),
             count_of(operand.dims), to_string(result->shape()), fmt::join(dims, "x"));
      view = reshaped(operand, dims);
    }
    if (view && view->dims != dims) return std::nullopt;  // the kernel says what is wrong
    return view;
  }

  std::optional<View> part(const Node& node, size_t index, const View& operand, const Dims& dims) const {
    const int64_t axis = resolve_axis(node, node.get_int("axis", 0), static_cast<int64_t>(operand.dims.size()));
    View view{dims, operand.strides, operand.offset};
    for (size_t before = 0; before < index; ++before) {
      if (!node.outputs[before]) return std::nullopt;
      view.offset += desc_of_(node.outputs[before]).dims[axis] * operand.strides[axis];
    }
    return view;
  }

  static std::optional<View> slice(const Node& node, const View& operand) {
    Slices slices;
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (!node.inputs[i]) continue;
      auto ints = constant_ints(node.inputs[i]);
      if (!ints) return std::nullopt;
      if (i == 1) slices.starts = std::move(*ints);
      if (i == 2) slices.ends = std::move(*ints);
      if (i == 3) slices.axes = std::move(ints);
      if (i == 4) slices.steps = std::move(ints);
    }
    return sliced(node, operand, slices);
  }

  /// Whether all who read the value can step as the view does.
  bool accepts(const Value* value, const View& view) const {
    return !kept_.contains(value) && std::all_of(value->uses.begin(), value->uses.end(),
                                                 [&](const Use& use) { return takes(*use.node, use.index, view); });
  }

  bool takes(const Node& node, size_t operand, const View& view) const {
    if (view.is_dense()) return true;
    auto found = group_of_.find(&node);
    if (found == group_of_.end()) return false;
    const NodeGroup& group = groups_[found->second];
    const bool alone = group.followers.empty();
    if (alone && operand == 0 && makes_view(node)) {
      bool all = true;
      for (size_t r = 0; all && r < node.outputs.size(); ++r) {
        auto result = view_by(node, r, view);
        all = result && accepts(node.outputs[r], *result);
      }
      if (all) return true;
    }
    if (view.dims.empty() || (view.strides.back() != 1 && view.dims.back() != 1)) return false;
    if (can_group(node) && can_group(*group.root)) {
      const Value* result = group.outputs[0];
      const TensorDesc desc{node.inputs[operand]->dtype(), view.dims, 0, view.strides};
      return !blocked_.contains(result) && has_long_rows(node, desc_of_(result).dims, {desc});
    }
    const KernelEntry* entry = entry_of(node);
    return alone && entry && std::count(entry->strided.begin(), entry->strided.end(), static_cast<int>(operand)) > 0;
  }

  std::vector<NodeGroup>& groups_;
  const std::set<const Value*>& kept_;
  const std::map<const Value*, int64_t>& blocked_;
  const DescOf& desc_of_;
  std::map<const Node*, size_t> group_of_;
  std::vector<bool> dropped_;
  std::map<const Value*, Placed> views_;
};

}  // namespace

std::map<const Value*, Placed> assign_views(std::vector<NodeGroup>& groups, const std::set<const Value*>& kept,
                                            const std::map<const Value*, int64_t>& blocked, const DescOf& desc_of) {
  return Assignment(groups, kept, blocked, desc_of).run(false);
}

std::map<const Value*, Placed> assign_whole_views(std::vector<NodeGroup>& groups, const DescOf& desc_of) {
  return Assignment(groups, {}, {}, desc_of).run(true);
}

}  // namespace tessera::kernels
