#include "tessera/passes/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/bounds.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/glob.h"
#include "tessera/ops/op.h"
#include "tessera/passes/copy_node.h"
#include "tessera/passes/forward.h"
#include "tessera/passes/move_again.h"
#include "tessera/passes/node_work.h"
#include "tessera/passes/pipeline.h"

namespace tessera::passes {
namespace {

using spmd::Program;
using Kind = Recompute::Kind;

constexpr std::string_view kStage = "recompute";

bool is_same(const Value* a, const Value* b);

bool have_same_attributes(const Node& a, const Node& b) {
  return std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(), b.attributes.end(),
                    [](const Attribute& one, const Attribute& other) {
                      return one.name == other.name &&
                             std::visit(
                                 [](const auto& x, const auto& y) {
                                   using X = std::decay_t<decltype(x)>;
                                   if constexpr (std::is_same_v<X, std::decay_t<decltype(y)>> && requires { x == y; })
                                     return static_cast<bool>(x == y);
                                   else
                                     return false;
                                 },
                                 one.value, other.value);
                    });
}

/// Whether two values are one, or equal nodes make them of the same values.
bool is_same(const Value* a, const Value* b) {
  if (a == b) return true;
  if (!a || !b || !a->producer || !b->producer || a->producer == b->producer) return false;
  const Node &first = *a->producer, &second = *b->producer;
  return first.op_type == second.op_type && first.domain == second.domain && first.outputs.size() == 1 &&
         second.outputs.size() == 1 && have_same_attributes(first, second) &&
         std::equal(first.inputs.begin(), first.inputs.end(), second.inputs.begin(), second.inputs.end(), is_same);
}

// One class, because the choice of what to recompute depends on what copying it would take: both use the same marks of
// the forward and the backward pass, and copies change these marks.
class Recomputation {
 public:
  Recomputation(Program& program, const Recompute& which, const cost::Prices* prices)
      : program_(program),
        graph_(*program.graph),
        which_(which),
        prices_(prices),
        live_(program),
        forward_(program, live_) {
    for (size_t s = 0; s < forward_.segments().size(); ++s)
      for (const Node* node : forward_.segments()[s].nodes) segment_of_[node] = s;
    matched_.resize(which.patterns.size());
    late_of_segment_.resize(forward_.segments().size());
    note_gathered();
    note_late();
  }

  std::string run() {
    if (!has_backward_pass())
      fail(kStage, "the program has no backward pass that tensors would be held for; remove `recompute`");
    kinds_.assign(forward_.segments().size(), which_.kind);
    if (which_.kind == Kind::by_cost) choose();
    if (which_.kind == Kind::selective || which_.kind == Kind::full) leave_what_frees_nothing();
    const Figures all = figures(late_, kinds_);
    copy_late_uses();
    require_matches();
    spmd::erase_dead(program_);
    if (all.nodes == 0) return "recomputation: no operator runs again, because that would free nothing";
    if (all.freed <= 0)
      return fmt::format(
          "recomputation: {} operators run again, which frees nothing: what they read is held instead, and is {} "
          "larger",
          all.nodes, text_of(-all.freed));
    return fmt::format("recomputation: {} operators run again, so {} less are held for the backward pass", all.nodes,
                       text_of(all.freed));
  }

  /// The number of values that it visited to find what choices free.
  int64_t visited() const { return visited_; }

 private:
  struct Figures {
    double freed = 0;  ///< bytes
    double cost = 0;   ///< seconds on the machine that is named, else bytes of memory traffic
    int nodes = 0;     ///< that run again
  };

  static std::string text_of(double bytes) {
    if (bytes >= 1e9) return fmt::format("{:.1f} GB", bytes / 1e9);
    return bytes >= 1e6 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.1f} kB", bytes / 1e3);
  }

  bool has_backward_pass() const {
    const auto& nodes = graph_.nodes();
    return !forward_.segments().empty() && std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
      return !forward_.contains(node.get()) && std::any_of(node->inputs.begin(), node->inputs.end(),
                                                           [&](const Value* operand) { return is_late(operand); });
    });
  }

  // Whether a later node's operand is made in the forward pass, as an activation or of states alone.
  bool is_late(const Value* operand) const {
    return operand && operand->producer && forward_.contains(operand->producer) &&
           (forward_.is_activation(operand) || !forward_.depends_on_input(operand));
  }

  // States that ranks gather from their stored parts. They stay gathered if the forward and backward pass share them,
  // or if that is requested.
  void note_gathered() {
    std::unordered_set<const Value*> communicated;
    std::set<const Value*> kept;
    const auto is_kept = [&](const Value* value) {
      if (!value) return false;
      if (value->kind == ValueKind::state)
        return std::any_of(which_.keep_gathered.begin(), which_.keep_gathered.end(),
                           [&](const std::string& pattern) { return glob_matches(pattern, program_.name_of(value)); });
      return kept.contains(value);
    };
    for (const auto& node : graph_.nodes()) {
      const size_t position = position_.size();
      position_[node.get()] = position;
      const bool is = node->domain == spmd::kCommDomain ||
                      std::any_of(node->inputs.begin(), node->inputs.end(),
                                  [&](const Value* operand) { return communicated.contains(operand); });
      const bool of_kept = std::any_of(node->inputs.begin(), node->inputs.end(), is_kept);
      for (Value* result : node->outputs) {
        if (!result || forward_.depends_on_input(result)) continue;
        form_[result] = form_of(*node);
        if (is) communicated.insert(result);
        if (of_kept) kept.insert(result);
        if (is && forward_.contains(node.get()) &&
            (of_kept || std::any_of(result->uses.begin(), result->uses.end(),
                                    [&](const Use& use) { return !forward_.contains(use.node); })))
          kept_gathered_.insert(result);
        if (is && !forward_.contains(node.get())) gathered_later_[form_[result]].emplace_back(result, position + 1);
      }
    }
    for (const auto& region : flow::flow_of(graph_).region_of) in_regions_.insert(region.first);
  }

  // A hash that is equal for values that are the same (is_same): for results that do not depend on inputs, and whose
  // operands have one.
  size_t form_of(const Node& node) const {
    size_t form = std::hash<std::string>()(node.op_type);
    for (const Value* operand : node.inputs) {
      const auto known = form_.find(operand);
      const size_t own = known != form_.end() ? known->second : std::hash<const Value*>()(operand);
      form = form * 1099511628211U + own;
    }
    return form;
  }

  // Whether later nodes read the value itself, held, rather than a copy.
  bool is_held(const Value* value, const std::vector<Kind>& kinds) const {
    const Node* maker = value->producer;
    if (!maker || !forward_.contains(maker)) return true;
    if (maker->is("Recv", spmd::kCommDomain)) return true;  // a message comes once
    if (kept_gathered_.contains(value) || maker->domain == flow::kDomain || in_regions_.contains(maker)) return true;
    if (which_.kind == Kind::by_name) return !is_named(*value);
    const auto segment = segment_of_.find(maker);
    if (segment == segment_of_.end() || forward_.segments()[segment->second].last) return true;
    const Kind kind = kinds[segment->second];
    if (kind == Kind::none) return true;
    const bool of_input = forward_.depends_on_input(value);
    if (!of_input && is_moved_state(*value)) return true;         // move_again.h decides
    if (of_input && !forward_.is_activation(value)) return true;  // masks, positions: small, and shared by segments
    if (of_input && forward_.is_between(live_.home(value))) return true;
    return kind == Kind::selective && is_settled(*value);
  }

  // Whether the value has the elements of a state, such as its cast.
  static bool is_moved_state(const Value& value) {
    if (value.kind == ValueKind::state) return true;
    return value.producer && moves_elements(*value.producer) && value.producer->input(0) &&
           is_moved_state(*value.producer->input(0));
  }

  bool is_named(const Value& value) const {
    const std::string& name = program_.name_of(&value);
    bool named = false;
    for (size_t p = 0; p < which_.patterns.size(); ++p)
      if (glob_matches(which_.patterns[p], name)) named = matched_[p] = true;
    return named;
  }

  // Whether the value is the result of a costly operator, including a bias that is added directly to it.
  bool is_settled(const Value& value) const {
    if (is_costly(*value.producer)) return true;
    if (value.producer->inputs.size() != 2 || !ops::op_of(*value.producer).elementwise) return false;
    for (size_t i : {0, 1}) {
      const Value *made = value.producer->inputs[i], *other = value.producer->inputs[1 - i];
      if (made && made->producer && made->uses.size() == 1 && forward_.contains(made->producer) &&
          is_costly(*made->producer) && other && !forward_.depends_on_input(other))
        return true;
    }
    return false;
  }

  // Communication, except what a rank gathers from its own smaller part and others'; and operators with many FLOPs for
  // each element, except products of two activations (scores of attention).
  bool is_costly(const Node& node) const {
    constexpr double kMany = 16;
    if (node.domain == spmd::kCommDomain) return !node.input(0) || bytes_of(node.output()) <= bytes_of(node.input(0));
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (!op || op->elementwise) return false;
    if (flops_of(node) <= kMany * spmd::hinted(product(node.output()->shape()), program_.hints)) return false;
    return node.operand_count() != 2 || !std::all_of(node.inputs.begin(), node.inputs.end(), [&](const Value* operand) {
             return operand && forward_.depends_on_input(operand);
           });
  }

  double flops_of(const Node& node) const {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    return op && op->flops ? spmd::hinted(ops::flops_of(node), program_.hints) : 0;
  }

  double bytes_of(const Value* value) const {
    return spmd::hinted(product(value->shape()), program_.hints) * static_cast<double>(bits_of(value->dtype())) / 8;
  }

  // Of a node among those that run again.
  double cost_of(const Node& node, const std::unordered_set<const Node*>& again) const {
    return prices_ && is_fused(node, again) ? 0 : passes::cost_of(node, program_, prices_);
  }

  // Whether an element-wise node goes on with what another one has just made for it alone: one kernel does both.
  static bool is_fused(const Node& node, const std::unordered_set<const Node*>& again) {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    return op && op->elementwise && std::any_of(node.inputs.begin(), node.inputs.end(), [&](const Value* operand) {
             return operand && operand->producer && operand->uses.size() == 1 && again.contains(operand->producer) &&
                    operand->producer->domain != spmd::kCommDomain;
           });
  }

  // A value of the forward pass that later nodes read; each once, in the program's order of its readers.
  void note_late() {
    std::unordered_set<const Value*> seen;
    for (const auto& node : graph_.nodes()) {
      if (forward_.contains(node.get())) continue;
      for (const Value* operand : node->inputs) {
        if (!is_late(operand) || !seen.insert(operand).second) continue;
        late_.push_back(operand);
        if (const auto segment = segment_of_.find(operand->producer); segment != segment_of_.end())
          late_of_segment_[segment->second].push_back(operand);
        if (const Value* home = home_of(operand)) ++late_in_[home];
      }
    }
  }

  // Null for what is made of states alone: it is held, made again from these (move_again.h), or gathered, in any case.
  const Value* home_of(const Value* value) const {
    const Value* home = live_.home(value);
    return home && forward_.depends_on_input(home) ? home : nullptr;
  }

  // The figures if these segments' late values are recomputed according to `kinds`; all others are held in any case. It
  // visits only what the values are recomputed from, so querying every segment alone is linear in total.
  Figures figures(const std::vector<const Value*>& late, const std::vector<Kind>& kinds) const {
    std::vector<const Value*> open;
    std::unordered_map<const Value*, int> left;  // by home: its late values that need not be held themselves
    for (const Value* value : late) {
      if (is_held(value, kinds)) continue;
      open.push_back(value);
      if (const Value* home = home_of(value)) ++left[home];
    }
    std::unordered_set<const Value*> held;  // homes of values that recomputation reads
    std::unordered_set<const Node*> again;
    while (!open.empty()) {
      const Value* value = open.back();
      open.pop_back();
      ++visited_;
      if (is_held(value, kinds)) {
        if (const Value* home = home_of(value)) held.insert(home);
        continue;
      }
      if (!again.insert(value->producer).second) continue;
      for (const Value* operand : value->producer->inputs)
        if (operand) open.push_back(operand);
    }
    Figures result;
    for (const auto& [home, count] : left)
      if (count == late_in_.at(home) && !held.contains(home)) result.freed += live_.of(home);
    for (const Value* home : held)
      if (!late_in_.contains(home)) result.freed -= live_.of(home);
    // In the program's order: sums rounded in another order could lead to another choice on another rank.
    std::vector<const Node*> order(again.begin(), again.end());
    std::sort(order.begin(), order.end(),
              [&](const Node* a, const Node* b) { return position_.at(a) < position_.at(b); });
    for (const Node* node : order) result.cost += cost_of(*node, again);
    result.nodes = static_cast<int>(order.size());
    return result;
  }

  void leave_what_frees_nothing() {
    std::vector<Kind> alone(forward_.segments().size(), Kind::none);
    for (size_t s = 0; s < kinds_.size(); ++s)
      if (figures_of(s, which_.kind, alone).freed <= 0) kinds_[s] = Kind::none;
  }

  // The figures if only this segment is recomputed; `alone` is "none" for all segments before and after the call.
  Figures figures_of(size_t segment, Kind kind, std::vector<Kind>& alone) const {
    alone[segment] = kind;
    const Figures result = figures(late_of_segment_[segment], alone);
    alone[segment] = Kind::none;
    return result;
  }

  // The choices for segments that free enough at the least cost; if none free enough, those that free most.
  void choose() {
    const size_t count = kinds_.size();
    kinds_.assign(count, Kind::none);
    struct Choice {
      Kind kind;
      double freed, cost;
    };
    std::vector<std::vector<Choice>> choices(count);
    double sum = 0;
    std::vector<Kind> alone(count, Kind::none);
    for (size_t s = 0; s < count; ++s) {
      double most = 0;
      for (Kind kind : {Kind::selective, Kind::full}) {
        const Figures of = figures_of(s, kind, alone);
        if (of.freed <= most) continue;
        most = of.freed;
        choices[s].push_back({kind, of.freed, of.cost});
      }
      sum += most;
    }
    const auto free_most = [&] {
      for (size_t s = 0; s < count; ++s)
        if (!choices[s].empty()) kinds_[s] = choices[s].back().kind;
    };
    if (which_.bytes_to_free >= sum) return free_most();
    constexpr size_t kUnits = 4096;
    const double unit = sum / kUnits;
    // Freed bytes are rounded down and bytes to free up, so the choice frees enough.
    const size_t wanted = std::min(kUnits, static_cast<size_t>(std::ceil(which_.bytes_to_free / unit)));
    constexpr double kNever = std::numeric_limits<double>::infinity();
    // By units freed (`wanted` stands for that many or more): the least cost so far, and the choice that gives it.
    std::vector<double> least(wanted + 1, kNever);
    least[0] = 0;
    std::vector<std::vector<std::pair<int, size_t>>> from(count);  // choice, units before
    for (size_t s = 0; s < count; ++s) {
      std::vector<double> next(wanted + 1, kNever);
      from[s].assign(wanted + 1, {-1, 0});
      for (size_t units = 0; units <= wanted; ++units) {
        if (least[units] == kNever) continue;
        const auto offer = [&](int choice, size_t freed, double cost) {
          const size_t to = std::min(wanted, units + freed);
          if (least[units] + cost >= next[to]) return;
          next[to] = least[units] + cost;
          from[s][to] = {choice, units};
        };
        offer(-1, 0, 0);
        for (size_t c = 0; c < choices[s].size(); ++c)
          offer(static_cast<int>(c), static_cast<size_t>(choices[s][c].freed / unit), choices[s][c].cost);
      }
      least = std::move(next);
    }
    size_t at = wanted;
    if (least[at] == kNever) return free_most();  // after rounding down, nothing is enough
    for (size_t s = count; s-- > 0;) {
      const auto [choice, before] = from[s][at];
      if (choice >= 0) kinds_[s] = choices[s][static_cast<size_t>(choice)].kind;
      at = before;
    }
  }

  void copy_late_uses() {
    std::vector<Node*> order;
    for (const auto& node : graph_.nodes()) order.push_back(node.get());
    for (Node* node : order) {
      if (forward_.contains(node)) continue;
      for (size_t i = 0; i < node->inputs.size(); ++i)
        if (Value* operand = node->inputs[i]; is_late(operand) && !is_held(operand, kinds_))
          graph_.set_input(node, i, again(operand, node));
    }
  }

  // The value, recomputed before `before` unless that was done already.
  Value* again(Value* value, const Node* before) {
    if (is_held(value, kinds_)) return value;
    if (const auto known = copies_.find(value); known != copies_.end()) return known->second;
    const Node& first = *value->producer;
    if (Value* gathered = gathered_before(value, before)) return copies_[value] = gathered;
    std::vector<Value*> operands = first.inputs;
    for (Value*& operand : operands)
      if (operand) operand = again(operand, before);
    const Node* copy = copy_node(program_, first, std::move(operands), before);
    for (size_t r = 0; r < first.outputs.size(); ++r)
      if (first.outputs[r]) copies_.emplace(first.outputs[r], copy->outputs[r]);
    replace_gathered(value, copies_.at(value), before);
    return copies_.at(value);
  }

  // The backward pass' gathered values that may equal this one; null if there are none.
  std::vector<std::pair<Value*, size_t>>* gathered_like(const Value* value) {
    const auto form = form_.find(value);
    if (form == form_.end()) return nullptr;  // it is not computed from states alone
    const auto found = gathered_later_.find(form->second);
    return found == gathered_later_.end() ? nullptr : &found->second;
  }

  // What the backward pass has gathered of the same state by that point.
  Value* gathered_before(const Value* value, const Node* before) {
    if (const auto* all = gathered_like(value))
      for (const auto& [other, at] : *all)
        if (at <= position_.at(before) && is_same(other, value)) return other;
    return nullptr;
  }

  // Later gathers of the same state as `value` in the backward pass are replaced by `made`.
  void replace_gathered(const Value* value, Value* made, const Node* before) {
    auto* all = gathered_like(value);
    if (!all) return;
    for (auto& [other, at] : *all) {
      if (!is_same(other, made)) continue;
      graph_.replace_uses(other, made);
      other = made;
      at = position_.at(before);
    }
  }

  void require_matches() const {
    std::vector<std::string_view> names;
    for (const Forward::Segment& segment : forward_.segments())
      for (const Node* node : segment.nodes)
        for (const Value* result : node->outputs)
          if (result) names.push_back(result->name);
    for (size_t p = 0; p < which_.patterns.size(); ++p)
      if (!matched_[p])
        fail(kStage, "'{}' matches no result of the forward pass that the backward pass reads{}", which_.patterns[p],
             nearest_names(names, which_.patterns[p]));
  }

  Program& program_;
  Graph& graph_;
  const Recompute& which_;
  const cost::Prices* prices_;  // null: no machine is named
  const LiveBytes live_;
  const Forward forward_;
  std::unordered_map<const Node*, size_t> position_;  // in the original program
  std::set<const Value*> kept_gathered_;              // by the forward pass, for the backward pass, too
  std::unordered_map<const Value*, size_t> form_;     // of results that do not depend on inputs
  std::unordered_map<size_t, std::vector<std::pair<Value*, size_t>>>
      gathered_later_;                // in the backward pass, by form, with their positions
  std::set<const Node*> in_regions_;  // of loops and branches
  std::unordered_map<const Node*, size_t> segment_of_;
  std::vector<const Value*> late_;                          // values of the forward pass that later nodes read
  std::vector<std::vector<const Value*>> late_of_segment_;  // those that each segment makes
  std::unordered_map<const Value*, int> late_in_;           // number of late values with this home
  std::vector<Kind> kinds_;                                 // by segment
  mutable int64_t visited_ = 0;                             // values, to compute figures
  mutable std::vector<bool> matched_;
  std::unordered_map<const Value*, Value*> copies_;
};

}  // namespace

Recompute Recompute::parse(std::string_view text) {
  constexpr std::string_view kAuto = "auto:";
  if (text.empty() || text == "none") return {};
  if (text == "selective") return {Kind::selective};
  if (text == "full") return {Kind::full};
  Recompute result;
  if (text.starts_with(kAuto)) {
    result.kind = Kind::by_cost;
    const std::optional<double> bytes = Bounds::at_least(0).parse(text.substr(kAuto.size()));
    if (!bytes) fail(kStage, "'{}' has no number of bytes after 'auto:'; write one, as in auto:2e9", text);
    result.bytes_to_free = *bytes;
    return result;
  }
  result.kind = Kind::by_name;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    if (comma == begin)
      fail(kStage, "'{}' contains an empty name; write none, selective, full, auto, or names with commas between them",
           text);
    result.patterns.emplace_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return result;
}

void recompute(Program& program, Context& context) {
  const Recompute& which = context.recompute;
  if (which.kind == Kind::none || (which.kind == Kind::by_cost && which.bytes_to_free <= 0)) return;
  Recomputation recomputation(program, which, context.prices);
  context.notes.push_back(recomputation.run());
  context.visited = recomputation.visited();
}

}  // namespace tessera::passes
