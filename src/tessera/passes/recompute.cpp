#include "tessera/passes/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ir/glob.h"
#include "tessera/ops/op.h"
#include "tessera/passes/forward.h"
#include "tessera/passes/pipeline.h"

namespace tessera::passes {
namespace {

using spmd::Program;
using Kind = Recompute::Kind;

constexpr std::string_view kStage = "recompute";

/// What a choice costs, in bytes of memory traffic: on today's devices one takes as long as some ten FLOPs, and a
/// tenth of one that comes over a link.
constexpr double kFlopsPerByte = 10, kBytesPerLinkByte = 10;

class Recomputation {
 public:
  Recomputation(Program& program, const Recompute& which)
      : program_(program), graph_(*program.graph), which_(which), live_(program), forward_(program, live_) {
    for (size_t s = 0; s < forward_.segments().size(); ++s)
      for (const Node* node : forward_.segments()[s].nodes) segment_of_[node] = s;
    matched_.resize(which.patterns.size());
  }

  std::string run() {
    if (!has_backward_pass())
      fail(kStage, "the program has no backward pass, so that nothing is held for one; leave --recompute out");
    kinds_.assign(forward_.segments().size(), which_.kind);
    if (which_.kind == Kind::by_cost) choose();
    if (which_.kind == Kind::selective || which_.kind == Kind::full) leave_what_frees_nothing();
    const Figures all = figures(kinds_);
    copy_late_uses();
    require_matches();
    spmd::erase_dead(program_);
    if (all.nodes == 0) return "recomputation: no operator runs again, since that would free nothing";
    return fmt::format("recomputation: {} operators run again, so that {} less are held for the backward pass",
                       all.nodes, text_of(all.freed));
  }

 private:
  struct Figures {
    double freed = 0;  ///< bytes
    double cost = 0;   ///< bytes of memory traffic
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

  // Of an operand of a later node.
  bool is_late(const Value* operand) const {
    return operand && operand->producer && forward_.contains(operand->producer) &&
           (forward_.is_activation(operand) || !forward_.depends_on_input(operand));
  }

  // Whether later nodes read the value itself, held, rather than a copy.
  bool is_held(const Value* value, const std::vector<Kind>& kinds) const {
    const Node* maker = value->producer;
    if (!maker || !forward_.contains(maker)) return true;
    if (which_.kind == Kind::by_name) return !is_named(*value);
    const auto segment = segment_of_.find(maker);
    if (segment == segment_of_.end() || forward_.segments()[segment->second].last) return true;
    const Kind kind = kinds[segment->second];
    if (kind == Kind::none) return true;
    const bool of_input = forward_.depends_on_input(value);
    if (of_input && !forward_.is_activation(value)) return true;  // masks, positions: small, and shared by segments
    if (of_input && forward_.is_between(live_.home(value))) return true;
    return kind == Kind::selective && is_settled(*value);
  }

  bool is_named(const Value& value) const {
    const std::string& name = program_.name_of(&value);
    bool named = false;
    for (size_t p = 0; p < which_.patterns.size(); ++p)
      if (glob_matches(which_.patterns[p], name)) named = matched_[p] = true;
    return named;
  }

  // Whether the value is what a costly operator made, with the bias that is added to it at once.
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

  // Communications, and what has many FLOPs for each element, but for a product of two activations: scores.
  bool is_costly(const Node& node) const {
    constexpr double kMany = 16;
    if (node.domain == spmd::kCommDomain) return true;
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

  double cost_of(const Node& node) const {
    double bytes = 0;
    for (const auto* values : {&node.inputs, &node.outputs})
      for (const Value* value : *values)
        if (value && value->has_shape()) bytes += bytes_of(value);
    return bytes * (node.domain == spmd::kCommDomain ? kBytesPerLinkByte : 1) + flops_of(node) / kFlopsPerByte;
  }

  // What later nodes need: held homes, and nodes to run again, in the order in which the forward pass has them.
  struct Needs {
    std::set<const Value*> held;
    std::set<const Node*> again;
  };

  Needs needs(const std::vector<Kind>& kinds) const {
    Needs result;
    std::vector<const Value*> open;
    for (const auto& node : graph_.nodes())
      if (!forward_.contains(node.get()))
        for (const Value* operand : node->inputs)
          if (is_late(operand)) open.push_back(operand);
    while (!open.empty()) {
      const Value* value = open.back();
      open.pop_back();
      if (is_held(value, kinds)) {
        if (const Value* home = live_.home(value)) result.held.insert(home);
        continue;
      }
      if (!result.again.insert(value->producer).second) continue;
      for (const Value* operand : value->producer->inputs)
        if (operand) open.push_back(operand);
    }
    return result;
  }

  Figures figures(const std::vector<Kind>& kinds) const {
    const std::vector<Kind> none(kinds.size(), Kind::none);
    const Needs before = needs(none), after = needs(kinds);
    Figures result;
    for (const Value* home : before.held) result.freed += live_.of(home);
    for (const Value* home : after.held) result.freed -= live_.of(home);
    for (const Node* node : after.again) result.cost += cost_of(*node);
    result.nodes = static_cast<int>(after.again.size());
    return result;
  }

  void leave_what_frees_nothing() {
    for (size_t s = 0; s < kinds_.size(); ++s)
      if (figures_of(s, which_.kind).freed <= 0) kinds_[s] = Kind::none;
  }

  // Of one segment alone.
  Figures figures_of(size_t segment, Kind kind) const {
    std::vector<Kind> alone(forward_.segments().size(), Kind::none);
    alone[segment] = kind;
    return figures(alone);
  }

  // The choices of segments that free enough for the least cost; all in full, if nothing frees enough.
  void choose() {
    const size_t count = kinds_.size();
    kinds_.assign(count, Kind::none);
    struct Choice {
      Kind kind;
      double freed, cost;
    };
    std::vector<std::vector<Choice>> choices(count);
    double sum = 0;
    for (size_t s = 0; s < count; ++s) {
      double most = 0;
      for (Kind kind : {Kind::selective, Kind::full}) {
        const Figures of = figures_of(s, kind);
        if (of.freed <= most) continue;
        most = of.freed;
        choices[s].push_back({kind, of.freed, of.cost});
      }
      sum += most;
    }
    if (which_.bytes_to_free >= sum) return kinds_.assign(count, Kind::full);
    constexpr size_t kUnits = 4096;
    const double unit = sum / kUnits;
    // Freed bytes are rounded down, and those to free up: the choice frees enough.
    const size_t wanted = std::min(kUnits, static_cast<size_t>(std::ceil(which_.bytes_to_free / unit)));
    constexpr double kNever = std::numeric_limits<double>::infinity();
    // By units freed, `wanted` standing for all from there: the least cost so far, and the choice that gave it.
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
    while (least[at] == kNever) --at;
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

  // The value, computed again before `before`, unless it was already.
  Value* again(Value* value, const Node* before) {
    if (is_held(value, kinds_)) return value;
    if (const auto known = copies_.find(value); known != copies_.end()) return known->second;
    const Node& first = *value->producer;
    auto copy = std::make_unique<Node>(first);
    if (!copy->name.empty()) copy->name += ".again";
    for (Value*& operand : copy->inputs)
      if (operand) operand = again(operand, before);
    for (Value*& result : copy->outputs) {
      if (!result) continue;
      Value* twin = graph_.add_value(result->name + ".again", ValueKind::result, result->type);
      twin->content = result->content;
      if (const auto placement = program_.placements.find(result); placement != program_.placements.end())
        program_.placements.emplace(twin, placement->second);
      copies_.emplace(result, twin);
      result = twin;
    }
    graph_.adopt_node(std::move(copy), before);
    return copies_.at(value);
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
  const LiveBytes live_;
  const Forward forward_;
  std::unordered_map<const Node*, size_t> segment_of_;
  std::vector<Kind> kinds_;  // by segment
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
    const std::string_view number = text.substr(kAuto.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), result.bytes_to_free);
    if (error != std::errc() || end != number.data() + number.size() || !(result.bytes_to_free >= 0))
      fail(kStage, "'{}' says no number of bytes after 'auto:'; write one, as in auto:2e9", text);
    return result;
  }
  result.kind = Kind::by_name;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    if (comma == begin)
      fail(kStage, "'{}' holds an empty name; write none, selective, full, auto, or names with commas between them",
           text);
    result.patterns.emplace_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return result;
}

void recompute(Program& program, Context& context) {
  const Recompute& which = context.recompute;
  if (which.kind == Kind::none || (which.kind == Kind::by_cost && which.bytes_to_free <= 0)) return;
  context.notes.push_back(Recomputation(program, which).run());
}

}  // namespace tessera::passes
