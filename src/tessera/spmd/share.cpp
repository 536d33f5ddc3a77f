#include "tessera/spmd/share.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "tessera/spmd/reshard.h"

namespace tessera::spmd {
namespace {

bool moves_data(const std::vector<ReshardStep>& steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const ReshardStep& step) { return collective_of(step.kind).has_value(); });
}

class Sharer {
 public:
  Sharer(const Graph& graph, const Layout& layout, Decisions& decisions)
      : graph_(graph), layout_(layout), decisions_(decisions) {
    for (size_t n = 0; n < layout.nodes.size(); ++n) index_of_[layout.nodes[n].node] = n;
  }

  void run() {
    for (size_t n = 0; n < layout_.nodes.size(); ++n) for_operands(n, decisions_.nodes[n], &Sharer::count);
    for_leaves(&Sharer::count);
    // Uses come before what makes their operands: when a movement's operand is sought, its forms are known.
    for_leaves(&Sharer::take);
    for (size_t n = layout_.nodes.size(); n-- > 0;) {
      drop_unused_form(n);
      for_operands(n, decisions_.nodes[n], &Sharer::take);
      const auto repeated = decisions_.repeated.find(layout_.nodes[n].node->outputs[0]);
      if (repeated == decisions_.repeated.end()) continue;
      for (const NodeDecision& form : repeated->second) for_operands(n, form, &Sharer::take);
    }
  }

 private:
  using Visit = void (Sharer::*)(const Value*, const Sharding&);

  // A value in a layout, and how to get there: the movement that makes it from what comes next on the way up.
  struct Level {
    const Value* value;
    Sharding wanted;
    NodeDecision form;  // of the value's producer; of the last level, none
  };

  struct Wish {
    Sharding layout;
    int uses = 0;
  };

  void for_operands(size_t n, const NodeDecision& decision, Visit visit) {
    const NodeLayout& node = layout_.nodes[n];
    for (size_t t = 0; t < node.operand_slots.size(); ++t)
      if (node.operand_slots[t] >= 0) (this->*visit)(node.node->inputs[t], decision.operands[t]);
  }

  void for_leaves(Visit visit) {
    for (const Value* output : graph_.outputs) (this->*visit)(output, decisions_.outputs.at(output));
    for (const auto& state : graph_.values())
      if (state->next) (this->*visit)(state->next, decisions_.sources.at(state.get()));
  }

  void count(const Value* value, const Sharding& wanted) {
    for (const Level& level : way_up(value, wanted)) {
      std::vector<Wish>& wishes = wishes_[level.value];
      const auto known = find(wishes, level.wanted);
      if (known == wishes.end())
        wishes.push_back({level.wanted, 1});
      else
        ++known->uses;
    }
  }

  int uses(const Level& level) {
    std::vector<Wish>& wishes = wishes_[level.value];
    const auto known = find(wishes, level.wanted);
    return known == wishes.end() ? 0 : known->uses;
  }

  static std::vector<Wish>::iterator find(std::vector<Wish>& wishes, const Sharding& layout) {
    return std::find_if(wishes.begin(), wishes.end(),
                        [&](const Wish& wish) { return same_layout(wish.layout, layout); });
  }

  void take(const Value* value, const Sharding& wanted) {
    if (!value->producer) return;
    std::vector<Level> way = way_up(value, wanted);
    if (way.size() < 2 || best_of(way) == 0) {
      taken_.insert(value);
      return;
    }
    std::vector<NodeDecision>& forms = decisions_.repeated[value];
    if (std::none_of(forms.begin(), forms.end(),
                     [&](const NodeDecision& form) { return same_layout(form.results[0], wanted); }))
      forms.push_back(std::move(way[0].form));
  }

  size_t best_of(const std::vector<Level>& way) {
    if (!moves_data(plan_reshard(produced(way[0].value), way[0].wanted))) return 0;
    size_t best = 0;
    int most = uses(way[0]);
    for (size_t i = 1; i < way.size(); ++i) {
      if (same_layout(produced(way[i].value), way[i].wanted)) return i;
      if (const int here = uses(way[i]); here > most) best = i, most = here;
    }
    return best;
  }

  const Sharding& produced(const Value* value) const {
    const auto& results = value->producer->outputs;
    const auto at = std::find(results.begin(), results.end(), value) - results.begin();
    return decisions_.nodes[index_of_.at(value->producer)].results[at];
  }

  // The value in the layout, the operand of the movement that makes it in the layout that this takes, and so on.
  std::vector<Level> way_up(const Value* value, Sharding wanted) const {
    std::vector<Level> way;
    if (!value->producer || wanted.is_partial()) return way;
    way.push_back({value, std::move(wanted), {}});
    while (auto form = form_of(way.back())) {
      way.back().form = *form;
      way.push_back({value = value->producer->inputs[0], form->operands[0], {}});
    }
    return way;
  }

  // How the movement that makes a value computes it in the layout that is wanted; nothing if it cannot, if there is no
  // movement, or if its operand is stored: a stored value's uses are sliced, or fetched one by one.
  std::optional<NodeDecision> form_of(const Level& level) const {
    const Node& mover = *level.value->producer;
    if (ops::moves_of(mover) < ops::Moves::all || !mover.inputs[0]->producer) return std::nullopt;
    if (decisions_.fetched.contains(level.value)) return std::nullopt;
    const size_t n = index_of_.at(&mover);
    const NodeLayout& node = layout_.nodes[n];
    const Slot& slot = layout_.slots[node.result_slots[0]];
    if (slot.annotated || slot.stored) return std::nullopt;  // it is computed as ordered
    NodeDecision form = decisions_.nodes[n];
    std::vector<DimSharding> dims;
    for (size_t d = 0; d < slot.dims.size(); ++d) {
      const auto dim = refine(level.wanted.dims[d], boundaries(slot.sharding().dims[d]));
      if (!dim || dim->parts.size() != slot.dims[d].parts.size()) return std::nullopt;
      dims.push_back(*dim);
    }
    for (size_t s = 0; s < node.subfactors.size(); ++s) {
      form.axes[s].clear();
      for (const Place& place : node.subfactors[s].places)
        if (place.result && node.subfactors[s].splittable) form.axes[s] = dims[place.dim].parts[place.part].axes;
    }
    form.operands[0] = laid_out(layout_, node, form.axes, false, 0);
    form.results[0] = laid_out(layout_, node, form.axes, true, 0);
    if (!same_layout(form.results[0], level.wanted)) return std::nullopt;
    return form;
  }

  // A movement whose result nobody takes as it was to be made is made as the first that others take.
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
  std::unordered_map<const Node*, size_t> index_of_;
  std::unordered_map<const Value*, std::vector<Wish>> wishes_;  // of all uses, those below movements included
  std::unordered_set<const Value*> taken_;                      // as first made, by somebody
};

}  // namespace

void share_layout_changes(const Graph& graph, const Layout& layout, Decisions& decisions) {
  Sharer(graph, layout, decisions).run();
}

}  // namespace tessera::spmd
