#include "tessera/spmd/layout/propagate.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/spmd/layout/attach.h"

namespace tessera::spmd {
namespace {

// Lays out updates of stored states as those are stored. Invariant: a slot that is stored has the axes of a state's
// storage, dimension by dimension, and all its dimensions are closed, so that nothing else is added later.
class Updates {
 public:
  explicit Updates(Layout& layout) : layout_(layout) {}

  void lay_out(const Storage& storage) {
    std::map<const Value*, const Sharding*> next;  // by the next values of states
    for (const auto& [state, sharding] : storage)
      if (state->next) next.emplace(state->next, &sharding);
    for (const NodeLayout& node : layout_.nodes) {
      if (!node.updates) continue;
      for (size_t t = 0; t < node.operand_slots.size(); ++t)
        if (auto state = storage.find(node.node->inputs[t]); state != storage.end() && state->first->changing)
          store(node.operand_slots[t], state->second);
      for (size_t t = 0; t < node.result_slots.size(); ++t)
        if (auto state = next.find(node.node->outputs[t]); state != next.end())
          store(node.result_slots[t], *state->second);
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const NodeLayout& node : layout_.nodes) changed |= spread(node);
      for (auto node = layout_.nodes.rbegin(); node != layout_.nodes.rend(); ++node) changed |= spread(*node);
    }
    for (const auto& [made, read] : layout_.borders) hand_on(made, read);
  }

 private:
  const Expr& count(int slot) {
    auto [known, fresh] = counts_.try_emplace(slot, 0);
    if (fresh) known->second = product(layout_.slots[slot].value->shape());
    return known->second;
  }

  // As the state is stored, if the slot's parts allow it; else other rules decide the slot.
  void store(int index, const Sharding& stored) {
    Slot& slot = layout_.slots[index];
    if (slot.stored || slot.dims.size() != stored.dims.size()) return;
    std::vector<DimSharding> dims;
    for (size_t d = 0; d < slot.dims.size(); ++d) {
      DimSharding have;
      for (const PartState& part : slot.dims[d].parts) have.parts.push_back({part.size, {}});
      const auto refined = refine(stored.dims[d], boundaries(have));
      const auto same_size = [](const Part& part, const Part& other) { return part.size == other.size; };
      if (!refined ||
          !std::equal(refined->parts.begin(), refined->parts.end(), have.parts.begin(), have.parts.end(), same_size))
        return;
      for (const Part& part : refined->parts)
        if (std::any_of(part.axes.begin(), part.axes.end(),
                        [&](const AxisRef& axis) { return slot.is_placed_along(axis); }))
          return;
      dims.push_back(*refined);
    }
    for (size_t d = 0; d < slot.dims.size(); ++d)
      for (size_t p = 0; p < slot.dims[d].parts.size(); ++p) {
        PartState& part = slot.dims[d].parts[p];
        for (const AxisRef& axis : dims[d].parts[p].axes)
          if (axis.size > 1) part.axes.push_back(axis), part.origins.push_back({"storage", 0});
      }
    close(slot);
  }

  static void close(Slot& slot) {
    slot.stored = true;
    for (DimState& dim : slot.dims) dim.open = false;
  }

  // From a stored tensor of the node to its tensors with as many elements.
  bool spread(const NodeLayout& node) {
    if (!node.updates) return false;
    std::vector<int> slots = node.operand_slots;
    slots.insert(slots.end(), node.result_slots.begin(), node.result_slots.end());
    const auto from =
        std::find_if(slots.begin(), slots.end(), [&](int slot) { return slot >= 0 && layout_.slots[slot].stored; });
    if (from == slots.end()) return false;
    bool changed = false;
    for (int slot : slots)
      if (slot >= 0 && !layout_.slots[slot].stored && count(slot) == count(*from))
        changed |= take_over(node, *from, slot);
    return changed;
  }

  // Returns false and changes nothing if the node does not run along all split dimensions.
  bool take_over(const NodeLayout& node, int from, int to) {
    std::vector<std::pair<PartState*, const PartState*>> along;
    int64_t split = 0;
    for (const DimState& dim : layout_.slots[from].dims)
      split +=
          std::count_if(dim.parts.begin(), dim.parts.end(), [](const PartState& part) { return !part.axes.empty(); });
    for (const SubFactor& sub : node.subfactors) {
      PartState* target = nullptr;
      const PartState* source = nullptr;
      for (const Place& place : sub.places) {
        PartState& part = layout_.slots[place.slot].dims[place.dim].parts[place.part];
        if (place.slot == from) source = &part;
        if (place.slot == to) target = &part;
      }
      if (!source || source->axes.empty()) continue;
      if (!target || !sub.splittable) return false;
      along.emplace_back(target, source);
    }
    if (std::ssize(along) != split) return false;
    for (auto& [target, source] : along) {
      target->axes = source->axes;
      target->origins.assign(source->axes.size(),
                             {fmt::format("{} from '{}'", node.node->label(), layout_.slots[from].value->name), 0});
    }
    close(layout_.slots[to]);
    return true;
  }

  // Readers of an update's result may be split like it, where their parts line up, and may also be split further.
  void hand_on(int made, int read) {
    const Slot& from = layout_.slots[made];
    if (!from.stored) return;
    Slot& to = layout_.slots[read];
    for (size_t d = 0; d < to.dims.size(); ++d) {
      const auto& parts = from.dims[d].parts;
      if (parts.size() != to.dims[d].parts.size()) continue;
      for (size_t p = 0; p < parts.size(); ++p) {
        PartState& part = to.dims[d].parts[p];
        if (!(parts[p].size == part.size) || layout_.blocked[part.component]) continue;
        part.axes = parts[p].axes;
        part.origins = parts[p].origins;
      }
    }
  }

  Layout& layout_;
  std::map<int, Expr> counts_;  // elements, by slot
};

class Spreader {
 public:
  explicit Spreader(Layout& layout) : layout_(layout) {
    const ValueSet ordered = ordered_states(layout);
    for (const Slot& slot : layout.slots) ordered_.push_back(ordered.contains(slot.value));
  }

  Propagation run() {
    Propagation result;
    for (int level = 0; level <= kLast;) {
      ++round_;
      if (sweep(level))
        level = 0;
      else
        ++level;
    }
    lost_.clear();
    recording_ = true;
    sweep(kLast);
    result.rounds = round_;
    result.lost = std::move(lost_);
    return result;
  }

 private:
  static constexpr int kLast = 2;

  bool sweep(int level) {
    bool changed = false;
    for (const NodeLayout& node : layout_.nodes) changed |= spread(node, level);
    for (auto node = layout_.nodes.rbegin(); node != layout_.nodes.rend(); ++node) changed |= spread(*node, level);
    return changed;
  }

  PartState& at(const Place& place) { return layout_.slots[place.slot].dims[place.dim].parts[place.part]; }

  bool spread(const NodeLayout& node, int level) {
    if (node.updates || (level == 0 && !node.op->pass_through)) return false;
    bool changed = false;
    for (const SubFactor& sub : node.subfactors) {
      if (!sub.splittable || sub.places.size() < 2) continue;
      if (level < ops::traits_of(node.rule.factors[sub.factor].kind).level) continue;
      changed |= spread(node, sub);
    }
    return changed;
  }

  bool is_ordered(const Place& place) const { return layout_.slots[place.slot].annotated || ordered_[place.slot]; }

  // The strength of an axis list's claim: annotated tensors first, then larger ones.
  std::pair<bool, double> weight(const Place& place) {
    const Slot& slot = layout_.slots[place.slot];
    return {is_ordered(place), slot.bytes};
  }

  // The subfactor of a node that an axis belongs to, when several have it. Between two annotated ones the contraction
  // wins: its reduction gives the result the annotated layout.
  const SubFactor* winner(const NodeLayout& node, const AxisRef& axis) {
    const SubFactor* best = nullptr;
    std::tuple<bool, bool, double> best_claim{};
    for (const SubFactor& sub : node.subfactors) {
      const bool reduces = node.rule.factors[sub.factor].makes_partial();
      for (const Place& place : sub.places)
        for (const AxisRef& used : at(place).axes) {
          const Slot& slot = layout_.slots[place.slot];
          std::tuple claim{is_ordered(place), is_ordered(place) && reduces, slot.bytes};
          if (used.overlaps(axis) && (!best || claim > best_claim)) {
            best = &sub;
            best_claim = claim;
          }
        }
    }
    return best;
  }

  bool spread(const NodeLayout& node, const SubFactor& sub) {
    const Place* source = nullptr;
    for (const Place& place : sub.places) {
      const auto& axes = at(place).axes;
      if (axes.empty()) continue;
      if (!source) {
        source = &place;
        continue;
      }
      const auto& best = at(*source).axes;
      bool compatible = is_prefix(best, axes) || is_prefix(axes, best);
      if (compatible ? axes.size() > best.size() : weight(place) > weight(*source)) source = &place;
    }
    if (!source) return false;
    std::vector<AxisRef> axes = at(*source).axes;
    for (size_t i = 0; i < axes.size(); ++i)
      if (overlaps(node.at, axes[i])) {
        for (const Place& place : sub.places)
          if (at(place).axes.size() <= i)
            lose(place, axes[i], fmt::format("{} is placed along it", node.node->label()));
        axes.resize(i);
      }
    for (size_t i = 0; i < axes.size(); ++i)
      if (winner(node, axes[i]) != &sub) {
        if (recording_)
          for (const Place& place : sub.places)
            if (at(place).axes.size() <= i && place.slot != source->slot)
              lose(place, axes[i], fmt::format("{} splits another dimension over it", node.node->label()));
        axes.resize(i);
      }
    bool changed = false;
    for (const Place& place : sub.places) {
      PartState& part = at(place);
      if (&part == &at(*source) || !is_prefix(part.axes, axes)) continue;
      for (size_t i = part.axes.size(); i < axes.size(); ++i) {
        const Slot& slot = layout_.slots[place.slot];
        if (!slot.dims[place.dim].open) {
          lose(place, axes[i], "the dimension is closed by an annotation");
          break;
        }
        if (slot.is_placed_along(axes[i])) {
          lose(place, axes[i], "it is placed at one index of the axis");
          break;
        }
        if (slot.uses(axes[i])) {
          lose(place, axes[i], "the axis already splits another dimension of it");
          break;
        }
        part.axes.push_back(axes[i]);
        part.origins.push_back(
            {fmt::format("{} from '{}'", node.node->label(), layout_.slots[source->slot].value->name), round_});
        changed = true;
      }
    }
    return changed;
  }

  void lose(const Place& place, const AxisRef& axis, std::string reason) {
    if (!recording_) return;
    for (const Lost& known : lost_)
      if (known.slot == place.slot && known.dim == place.dim && known.part == place.part && known.axis == axis) return;
    lost_.push_back({place.slot, place.dim, place.part, axis, std::move(reason)});
  }

  Layout& layout_;
  std::vector<bool> ordered_;  // by slot: of an annotated state or of its movement
  int round_ = 0;
  bool recording_ = false;
  std::vector<Lost> lost_;
};

}  // namespace

Propagation propagate(Layout& layout, const std::vector<Annotation>& annotations, const Mesh& mesh,
                      const Storage& storage) {
  if (!storage.empty()) Updates(layout).lay_out(storage);
  std::vector<std::string> approximated;
  for (const Annotation& annotation : annotations) attach(layout, annotation, mesh, approximated);
  for (const Annotation& annotation : annotations) attach_sums(layout, annotation);
  Propagation found = Spreader(layout).run();
  found.approximated = std::move(approximated);
  return found;
}

}  // namespace tessera::spmd
