#include "tessera/spmd/decide/share.h"

#include <algorithm>
#include <set>

#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {
namespace {

bool moves_data(const std::vector<ReshardStep>& steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const ReshardStep& step) { return collective_of(step.kind).has_value(); });
}

class Sharer {
 public:
  Sharer(const Graph& graph, const Layout& layout, Decisions& decisions, std::optional<Wishes>& wishes)
      : graph_(graph), layout_(layout), decisions_(decisions), wishes_(wishes) {}

  void run() {
    const auto visit = [this](const Value* value, const Sharding& wanted) { take(value, wanted); };
    // Uses are visited before the producers of their operands, so a movement's layouts are known when its operand is
    // visited.
    for_each_leaf(graph_, decisions_, visit);
    for (size_t n = layout_.nodes.size(); n-- > 0;) {
      const NodeLayout& node = layout_.nodes[n];
      const bool moves = node.moves >= ops::Moves::all;
      if (moves) drop_unused_form(n);
      for_each_operand(node, decisions_.nodes[n], visit);
      const auto repeated = moves ? decisions_.repeated.find(node.node->outputs[0]) : decisions_.repeated.end();
      if (repeated == decisions_.repeated.end()) continue;
      for (const NodeDecision& form : repeated->second) for_each_operand(node, form, visit);
    }
  }

 private:
  void take(const Value* value, const Sharding& wanted) {
    if (!value->producer || layout_.of(value->producer).moves < ops::Moves::all) return;
    const bool changes =
        !same_layout(made(value), wanted) && moves_data(plan_reshard(made(value), wanted, value->dtype()));
    const auto way = changes ? way_up(layout_, value, wanted, decisions_.fetched) : std::vector<Level>{};
    if (way.size() < 2 || best_of(way) == 0) {
      taken_.insert(value);
      return;
    }
    std::vector<NodeDecision>& forms = decisions_.repeated[value];
    if (std::any_of(forms.begin(), forms.end(),
                    [&](const NodeDecision& form) { return same_layout(form.results[0], wanted); }))
      return;
    NodeDecision form = decisions_.nodes[layout_.index_of(value->producer)];
    form.axes = way[0].axes;
    form.operands[0] = way[1].wanted;
    form.results[0] = way[0].wanted;
    forms.push_back(std::move(form));
  }

  // The lowest level at which the value already has the layout, or at which the most uses want it.
  size_t best_of(const std::vector<Level>& way) {
    if (!wishes_) wishes_.emplace(graph_, layout_, decisions_);
    size_t best = 0;
    int most = wishes_->uses(way[0].value, way[0].wanted);
    for (size_t i = 1; i < way.size(); ++i) {
      if (same_layout(made(way[i].value), way[i].wanted)) return i;
      if (const int here = wishes_->uses(way[i].value, way[i].wanted); here > most) best = i, most = here;
    }
    return best;
  }

  const Sharding& made(const Value* value) const {
    const auto& results = value->producer->outputs;
    const auto at = std::find(results.begin(), results.end(), value) - results.begin();
    return decisions_.nodes[layout_.index_of(value->producer)].results[at];
  }

  // If no use takes a movement's result in its first layout, the first layout that uses do take replaces it.
  void drop_unused_form(size_t n) {
    const Value* result = layout_.nodes[n].node->outputs[0];
    const auto repeated = decisions_.repeated.find(result);
    if (repeated == decisions_.repeated.end() || taken_.contains(result)) return;
    std::vector<NodeDecision>& forms = repeated->second;
    decisions_.nodes[n] = std::move(forms.front());
    forms.erase(forms.begin());
    if (forms.empty()) decisions_.repeated.erase(repeated);
  }

  const Graph& graph_;
  const Layout& layout_;
  Decisions& decisions_;
  std::optional<Wishes>& wishes_;  // of the original decisions; computed when first needed
  ValueSet taken_;                 // by some use, in its first layout
};

}  // namespace

void share_layout_changes(const Graph& graph, const Layout& layout, Decisions& decisions,
                          std::optional<Wishes>& wishes) {
  Sharer(graph, layout, decisions, wishes).run();
}

}  // namespace tessera::spmd
