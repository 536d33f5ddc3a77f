#include "tessera/bind/views.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/bind/asked.h"
#include "tessera/kernels/axes.h"
#include "tessera/kernels/view.h"

namespace tessera::bind {
namespace {

using kernels::dense_strides;
using kernels::Follower;
using kernels::KernelEntry;
using kernels::Library;
using kernels::resolve_axis;
using kernels::Slices;
using kernels::TensorDesc;
using kernels::View;

constexpr size_t kNear = 32;     // the most groups between a view of a part and its readers
constexpr size_t kDeepest = 64;  // views of views

}  // namespace

class Views::Assignment {
 public:
  Assignment(std::vector<NodeGroup> groups, std::set<const Value*> kept, std::map<const Value*, int64_t> blocked,
             const Library& library)
      : groups_(std::move(groups)),
        kept_(std::move(kept)),
        blocked_(std::move(blocked)),
        library_(library),
        outcomes_(groups_.size()) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      group_of_[groups_[g].root] = g;
      for (const Follower& follower : groups_[g].followers) group_of_[follower.node] = g;
    }
  }

  Grouping run(const Bound& values, bool whole_only) {
    const Bound noted = asked_.noted(values);
    values_ = &noted;
    whole_only_ = whole_only;
    std::vector<bool> dropped(groups_.size(), false);
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (dropped[g]) continue;
      asked_.decision = g;
      Outcome& outcome = outcomes_[g] = decide(groups_[g]);
      dropped[g] = outcome.drops;
      if (outcome.transpose) dropped[*outcome.transpose] = true;
      for (const auto& [value, placed] : outcome.views) views_[value] = placed;
      outcome.decided = true;
    }
    Grouping grouping;
    for (size_t g = 0; g < groups_.size(); ++g)
      if (!dropped[g]) grouping.groups.push_back(groups_[g]);
    grouping.blocked = blocked_;
    grouping.views = views_;
    values_ = nullptr;
    return grouping;
  }

  std::optional<std::map<const Value*, Alias>> again(const std::vector<const Value*>& changed, const Bound& values) {
    values_ = &values;
    moved_.clear();
    const bool alike = decide_again(asked_.of(changed));
    values_ = nullptr;
    return alike ? std::optional(std::move(moved_)) : std::nullopt;
  }

 private:
  /// The outcome for a group: its results as views, and the group number of a Transpose that it does itself.
  struct Outcome {
    bool decided = false;  ///< else an earlier group decides
    bool drops = false;    ///< the group only makes views
    std::optional<size_t> transpose;
    std::vector<std::pair<const Value*, Alias>> views;

    /// Compares everything but the places of views in the memory of others.
    bool is_like(const Outcome& other) const {
      return drops == other.drops && transpose == other.transpose &&
             std::equal(
                 views.begin(), views.end(), other.views.begin(), other.views.end(),
                 [](const auto& a, const auto& b) { return a.first == b.first && a.second.base == b.second.base; });
    }
  };

  Outcome decide(const NodeGroup& group) const {
    Outcome outcome;
    if (!whole_only_) transpose_result(group, outcome);
    outcome.drops = make_views(group, outcome);
    return outcome;
  }

  // False if an outcome differs from the one before.
  template <typename Numbers>
  bool decide_again(const Numbers& asked) {
    std::vector<bool> wanted(groups_.size(), false);
    for (size_t g : asked) wanted[g] = true;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Outcome& before = outcomes_[g];
      if (!before.decided || (!wanted[g] && (moved_.empty() || !reads_moved(groups_[g])))) continue;
      const Outcome now = decide(groups_[g]);
      if (!now.is_like(before)) return false;
      for (const auto& [value, placed] : now.views) moved_[value] = placed;
    }
    return true;
  }

  bool reads_moved(const NodeGroup& group) const {
    return std::any_of(group.inputs.begin(), group.inputs.end(),
                       [&](const Value* operand) { return moved_.contains(operand); });
  }

  const Alias* placed(const Value* value) const {
    if (auto moved = moved_.find(value); moved != moved_.end()) return &moved->second;
    auto known = views_.find(value);
    return known == views_.end() ? nullptr : &known->second;
  }

  const KernelEntry* entry_of(const Node& node) const { return library_.find(node.op_type, node.domain); }

  // A result that only a Transpose reads is written in the Transpose's layout.
  void transpose_result(const NodeGroup& group, Outcome& outcome) const {
    const KernelEntry* entry = entry_of(*group.root);
    const Value* result = group.outputs.empty() ? nullptr : group.outputs[0];
    if (!entry || !entry->strides_result || !group.followers.empty()) return;
    if (!result || result->uses.size() != 1 || kept_.contains(result)) return;
    const Node& node = *result->uses[0].node;
    auto reader = group_of_.find(&node);
    if (!node.is("Transpose") || !node.domain.empty() || reader == group_of_.end()) return;
    const TensorDesc desc = values_->desc(result), read = values_->desc(node.outputs[0]);
    const View turned = transposed(node, View::dense(desc.dims));
    const std::vector<int64_t> perm = node.get_ints("perm", {});
    if (perm.empty() || turned.dims != read.dims) return;
    Dims strides(perm.size());
    const Dims dense = dense_strides(read.dims);
    for (size_t d = 0; d < perm.size(); ++d) strides[resolve_axis(node, perm[d], desc.rank())] = dense[d];
    if (!can_stride(*entry, group, -1, {desc.dims, strides})) return;
    outcome.views.emplace_back(result, Alias{node.outputs[0], 0, strides});
    outcome.transpose = reader->second;
  }

  // Whether all results of the group are views that their readers can read.
  bool make_views(const NodeGroup& group, Outcome& outcome) const {
    const Node& node = *group.root;
    if (!group.followers.empty() || !makes_view(node)) return false;
    const Value* operand = node.inputs[0];
    if (blocked_.contains(operand)) return false;
    Alias base{operand, 0, {}};
    View view = kernels::view_of(values_->desc(operand));
    if (const Alias* known = placed(operand)) {
      base = *known;
      view.offset = base.offset;
      if (!base.strides.empty()) view.strides = base.strides;
    }
    std::vector<View> results;
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      auto result = view_by(node, r, view);
      if (!result) return false;
      const bool in_bytes = bits_of(node.outputs[r]->dtype()) % 8 == 0;
      if (!is_whole(*result, base.base) && (whole_only_ || !in_bytes || !accepts(node.outputs[r], *result, kDeepest)))
        return false;
      results.push_back(std::move(*result));
    }
    for (size_t r = 0; r < results.size(); ++r)
      outcome.views.emplace_back(
          node.outputs[r], Alias{base.base, results[r].offset, results[r].is_dense() ? Dims{} : results[r].strides});
    return true;
  }

  bool is_whole(const View& view, const Value* base) const {
    return view.offset == 0 && view.is_dense() && count_of(view.dims) == values_->desc(base).count();
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
    const Dims dims = values_->desc(result).dims;
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
    if (view && view->dims != dims) return std::nullopt;  // the kernel reports the error
    return view;
  }

  std::optional<View> part(const Node& node, size_t index, const View& operand, const Dims& dims) const {
    const int64_t axis = resolve_axis(node, node.get_int("axis", 0), static_cast<int64_t>(operand.dims.size()));
    View view{dims, operand.strides, operand.offset};
    int64_t end = 0;
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      if (!node.outputs[r]) return std::nullopt;
      if (r == index) view.offset += end * operand.strides[axis];
      end += values_->desc(node.outputs[r]).dims[axis];
    }
    if (end != operand.dims[axis]) return std::nullopt;  // the kernel reports the error
    return view;
  }

  std::optional<View> slice(const Node& node, const View& operand) const {
    Slices slices;
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (!node.inputs[i]) continue;
      auto ints = values_->ints(node.inputs[i]);
      if (!ints) return std::nullopt;
      if (i == 1) slices.starts = std::move(*ints);
      if (i == 2) slices.ends = std::move(*ints);
      if (i == 3) slices.axes = std::move(ints);
      if (i == 4) slices.steps = std::move(ints);
    }
    return sliced(node, operand, slices);
  }

  /// Whether all readers of the value can stride as the view does, through at most `depth` views of views.
  bool accepts(const Value* value, const View& view, size_t depth) const {
    if (kept_.contains(value) || depth == 0) return false;
    const bool is_part = count_of(view.dims) < values_->desc(value->producer->inputs[0]).count();
    return std::all_of(value->uses.begin(), value->uses.end(), [&](const Use& use) {
      return takes(*use.node, use.index, view, depth) && (!is_part || is_near(*value->producer, *use.node));
    });
  }

  bool is_near(const Node& maker, const Node& reader) const {
    auto from = group_of_.find(&maker), to = group_of_.find(&reader);
    return from == group_of_.end() || to == group_of_.end() || to->second - from->second <= kNear;
  }

  bool takes(const Node& node, size_t operand, const View& view, size_t depth) const {
    if (view.is_dense()) return true;
    auto found = group_of_.find(&node);
    if (found == group_of_.end()) return false;
    const NodeGroup& group = groups_[found->second];
    if (library_.can_group(node) && library_.can_group(*group.root))
      return !blocked_.contains(group.outputs[0]) && goes_in(group, view);
    if (&node != group.root) return false;
    if (operand == 0 && makes_view(node)) {
      bool all = true;
      for (size_t r = 0; all && r < node.outputs.size(); ++r) {
        auto result = view_by(node, r, view);
        all = result && accepts(node.outputs[r], *result, depth - 1);
      }
      if (all) return true;
    }
    const KernelEntry* entry = entry_of(node);
    if (!entry || std::count(entry->strided.begin(), entry->strided.end(), static_cast<int>(operand)) == 0)
      return false;
    return makes_view(node) ||  // kernels that copy views can stride anyhow
           can_stride(*entry, group, static_cast<int>(operand), view);
  }

  /// Whether the kernel of the group's root can stride as the view does, of which it says that it may be strided.
  static bool can_stride(const KernelEntry& entry, const NodeGroup& group, int operand, const View& view) {
    if (operand < 0 && group.packed) return false;  // a packed form makes rows
    return entry.takes_strided ? entry.takes_strided(*group.root, operand, view) : view.strides.back() == 1;
  }

  /// Whether a group of element-wise nodes finds rows of consecutive elements in the view.
  bool goes_in(const NodeGroup& group, const View& view) const {
    int64_t stride = 1;  // of the innermost dimension so far
    for (size_t d = 0; d < view.dims.size(); ++d)
      if (view.dims[d] != 1) stride = view.strides[d];
    const Value* result = group.outputs[0];
    return stride == 1 && library_.has_long_rows(*group.root, values_->desc(result).dims,
                                                 {{result->dtype(), view.dims, 0, view.strides}});
  }

  const std::vector<NodeGroup> groups_;
  const std::set<const Value*> kept_;
  const std::map<const Value*, int64_t> blocked_;
  const Library& library_;
  const Bound* values_ = nullptr;
  bool whole_only_ = false;
  std::map<const Node*, size_t> group_of_;
  std::vector<Outcome> outcomes_;
  Asked asked_;                          // by groups
  std::map<const Value*, Alias> views_;  // of the first time
  std::map<const Value*, Alias> moved_;  // while it is decided again
};

Views::Views(std::vector<NodeGroup> groups, std::set<const Value*> kept, std::map<const Value*, int64_t> blocked,
             const kernels::Library& library)
    : assignment_(std::make_unique<Assignment>(std::move(groups), std::move(kept), std::move(blocked), library)) {}
Views::~Views() = default;

Grouping Views::assign(const Bound& values) {
  return assignment_->run(values, false);
}
Grouping Views::assign_whole(const Bound& values) {
  return assignment_->run(values, true);
}
std::optional<std::map<const Value*, Alias>> Views::assign_again(const std::vector<const Value*>& changed,
                                                                 const Bound& values) {
  return assignment_->again(changed, values);
}

}  // namespace tessera::bind
