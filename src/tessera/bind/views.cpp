#include "tessera/bind/views.h"

#include <algorithm>
#include <numeric>

#include "tessera/bind/asked.h"
#include "tessera/ir/flow.h"
#include "tessera/kernels/view.h"
#include "tessera/ops/parts.h"
#include "tessera/spmd/program.h"

namespace tessera::bind {
namespace {

using kernels::dense_strides;
using kernels::Follower;
using kernels::Library;
using kernels::TensorDesc;
using kernels::View;
using kernels::ViewKind;

constexpr size_t kNear = 32;     // the most groups between a view of a part and its last reader
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
      has_flow_ |= groups_[g].root->domain == flow::kDomain;
      for (const Follower& follower : groups_[g].followers) group_of_[follower.node] = g;
    }
  }

  Grouping run(const Bound& values, bool whole_only) {
    const Bound noted = asked_.noted(values);
    values_ = &noted;
    whole_only_ = whole_only;
    if (!whole_only_) join_all();
    std::vector<bool> dropped(groups_.size(), false);
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (dropped[g]) continue;
      asked_.decision = g;
      Outcome& outcome = outcomes_[g] = decide(groups_[g]);
      dropped[g] = outcome.drops;
      if (outcome.permutation) dropped[*outcome.permutation] = true;
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
  using Pieces = std::vector<std::pair<const Value*, int64_t>>;

  /// The decision for a group: its results as views, and the group of a permutation that its kernel performs.
  struct Outcome {
    bool decided = false;  ///< false: an earlier group decides
    bool drops = false;    ///< the group only makes views
    std::optional<size_t> permutation;
    std::vector<std::pair<const Value*, Alias>> views;

    /// Compares everything except the offsets of views that read.
    bool is_like(const Outcome& other) const {
      return drops == other.drops && permutation == other.permutation &&
             std::equal(
                 views.begin(), views.end(), other.views.begin(), other.views.end(),
                 [](const auto& a, const auto& b) { return a.first == b.first && a.second.base == b.second.base; });
    }
  };

  Outcome decide(const NodeGroup& group) const {
    Outcome outcome;
    if (joined_.contains(&group)) {
      outcome.drops = true;
      return outcome;
    }
    if (!whole_only_) permute_result(group, outcome);
    if (!whole_only_ && outcome.views.empty()) join_result(group, outcome);
    outcome.drops = make_views(group, outcome);
    return outcome;
  }

  // Returns false if a decision differs from the one before.
  template <typename Numbers>
  bool decide_again(const Numbers& asked) {
    std::vector<bool> wanted(groups_.size(), false);
    for (size_t decision : asked) {
      if (decision < groups_.size())
        wanted[decision] = true;
      else if (joins_otherwise(groups_[decision - groups_.size()]))
        return false;
    }
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

  // A result that only a permutation reads is written in the permutation's layout.
  void permute_result(const NodeGroup& group, Outcome& outcome) const {
    const Value* result = group.outputs.empty() ? nullptr : group.outputs[0];
    if (!result || result->uses.size() != 1 || kept_.contains(result)) return;
    const Node& node = *result->uses[0].node;
    auto reader = group_of_.find(&node);
    if (reader == group_of_.end() || library_.view_kind(node) != ViewKind::permutation) return;
    if (!library_.can_give_views(group)) return;
    const Dims dims = values_->type(result).dims;
    View numbered{dims, Dims(dims.size())};  // its strides show where each dimension has moved
    std::iota(numbered.strides.begin(), numbered.strides.end(), 0);
    const std::optional<View> turned = library_.view_by(node, 0, numbered, *values_);
    if (!turned) return;
    View placed{dims, Dims(dims.size())};
    const Dims dense = dense_strides(turned->dims);
    for (size_t d = 0; d < dense.size(); ++d) placed.strides[turned->strides[d]] = dense[d];
    if (!library_.gives_view(group, placed)) return;
    outcome.views.emplace_back(result, Alias{node.outputs[0], 0, placed.strides});
    outcome.permutation = reader->second;
  }

  // Decides which concatenations are computed in place. Their decisions are numbered after those of the groups.
  void join_all() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      asked_.decision = groups_.size() + g;
      Pieces pieces = pieces_of(groups_[g]);
      for (const auto& [piece, offset] : pieces) place_of_piece_[piece] = {groups_[g].root->outputs[0], offset, {}};
      if (!pieces.empty()) joined_[&groups_[g]] = std::move(pieces);
    }
  }

  bool joins_otherwise(const NodeGroup& group) const {
    const auto before = joined_.find(&group);
    return pieces_of(group) != (before == joined_.end() ? Pieces() : before->second);
  }

  // A result of which a concatenation makes a contiguous part is computed there.
  void join_result(const NodeGroup& group, Outcome& outcome) const {
    const Value* result = group.outputs.empty() ? nullptr : group.outputs[0];
    if (const auto piece = place_of_piece_.find(result); piece != place_of_piece_.end())
      outcome.views.emplace_back(result, piece->second);
  }

  // Whether a kernel computes one result, in memory that it is given.
  bool is_computed(const NodeGroup& group) const {
    return group.root->domain != spmd::kCommDomain && group.root->domain != flow::kDomain && group.bucket.empty() &&
           group.outputs.size() == 1 && group.outputs[0] && !kept_.contains(group.outputs[0]) &&
           !blocked_.contains(group.outputs[0]) && bits_of(group.outputs[0]->dtype()) % 8 == 0 &&
           !makes_view(*group.root) && !ops::joins(*group.root);
  }

  // The results of kernels of which a concatenation consists, each once, and how many elements are before each. None if
  // it has other operands, or if they are not contiguous in it.
  Pieces pieces_of(const NodeGroup& group) const {
    const Node& node = *group.root;
    if (has_flow_ || !ops::joins(node) || !group.followers.empty() || blocked_.contains(node.outputs[0])) return {};
    const Dims dims = values_->type(node.outputs[0]).dims;
    const size_t dim = ops::joined_dim(node, dims.size());
    if (std::any_of(dims.begin(), dims.begin() + static_cast<long>(dim), [](int64_t extent) { return extent != 1; }))
      return {};
    Pieces pieces;
    std::set<const Value*> known;
    int64_t offset = 0;
    for (const Value* operand : node.inputs) {
      const int64_t count = values_->type(operand).count();
      if (count == 0) continue;
      const Value* piece = is_whole_slice(operand) ? operand->producer->inputs[0] : operand;
      const auto maker = piece->producer ? group_of_.find(piece->producer) : group_of_.end();
      if (maker == group_of_.end() || !is_computed(groups_[maker->second]) ||
          groups_[maker->second].outputs[0] != piece || !is_read_only_by(node, piece) || !known.insert(piece).second)
        return {};
      pieces.emplace_back(piece, offset);
      offset += count;
    }
    return pieces;
  }

  // Whether a slice makes the value, and takes all elements of its operand in their order.
  bool is_whole_slice(const Value* value) const {
    const Node* slice = value->producer;
    if (!slice || !ops::takes_part(*slice) || !makes_view(*slice) || !slice->inputs[0]) return false;
    const TensorDesc whole = values_->type(slice->inputs[0]);
    if (whole.dims != values_->type(value).dims) return false;
    const std::optional<View> view = library_.view_by(*slice, 0, kernels::view_of(whole), *values_);
    return view && view->offset == 0 && view->is_dense();
  }

  // Whether only `node` reads the value, directly or through one view. A piece is in one buffer with the others: if
  // another node read it, the kernels of the later pieces would have to wait until that node has ended.
  bool is_read_only_by(const Node& node, const Value* value) const {
    return std::all_of(value->uses.begin(), value->uses.end(), [&](const Use& use) {
      const std::vector<Value*>& made = use.node->outputs;
      return use.node == &node ||
             (makes_view(*use.node) && made.size() == 1 && made[0]->uses.size() == 1 && made[0]->uses[0].node == &node);
    });
  }

  // Whether all results of the group can be views for their readers.
  bool make_views(const NodeGroup& group, Outcome& outcome) const {
    const Node& node = *group.root;
    if (!group.followers.empty() || !makes_view(node)) return false;
    const Value* operand = node.inputs[0];
    if (blocked_.contains(operand)) return false;
    Alias base{operand, 0, {}};
    View view = kernels::view_of(values_->type(operand));
    if (const Alias* known = placed(operand)) {
      base = *known;
      view.offset = base.offset;
      if (!base.strides.empty()) view.strides = base.strides;
    }
    std::vector<View> results;
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      auto result = library_.view_by(node, r, view, *values_);
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
    return view.offset == 0 && view.is_dense() && count_of(view.dims) == values_->type(base).count();
  }

  bool makes_view(const Node& node) const { return library_.view_kind(node) != ViewKind::none; }

  /// Whether all readers of the value can read the view's strides, through at most `depth` views of views.
  bool accepts(const Value* value, const View& view, size_t depth) const {
    if (kept_.contains(value) || depth == 0) return false;
    const bool is_part = count_of(view.dims) < values_->type(value->producer->inputs[0]).count();
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
    if (!group.outputs.empty() && blocked_.contains(group.outputs[0])) return false;
    if (&node == group.root && operand == 0 && makes_view(node)) {
      bool all = true;
      for (size_t r = 0; all && r < node.outputs.size(); ++r) {
        auto result = library_.view_by(node, r, view, *values_);
        all = result && accepts(node.outputs[r], *result, depth - 1);
      }
      if (all) return true;
    }
    return library_.takes_view(group, node, operand, view, values_->type);
  }

  const std::vector<NodeGroup> groups_;
  const std::set<const Value*> kept_;
  const std::map<const Value*, int64_t> blocked_;
  const Library& library_;
  const Bound* values_ = nullptr;
  bool whole_only_ = false;
  bool has_flow_ = false;  // an iteration would write over the pieces of the one before
  std::map<const Node*, size_t> group_of_;
  std::vector<Outcome> outcomes_;
  Asked asked_;                                   // by groups, first as they are, then as concatenations
  std::map<const NodeGroup*, Pieces> joined_;     // concatenations that are computed in place
  std::map<const Value*, Alias> place_of_piece_;  // of their pieces
  std::map<const Value*, Alias> views_;           // of the first decisions
  std::map<const Value*, Alias> moved_;           // while decisions are made again
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
