#include "tessera/proof/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/mesh/group.h"
#include "tessera/ops/op.h"
#include "tessera/proof/moves.h"

namespace tessera::proof {
namespace {

using Places = std::vector<PlacedAxis>;

class LayoutCheck {
 public:
  LayoutCheck(const spmd::Program& program, const std::vector<Communication>& communications,
              const std::vector<int>& ranks, Report& report)
      : program_(program), mesh_(program.mesh), ranks_(ranks), rank_(ranks.front()), report_(report) {
    for (const Communication& communication : communications) communications_[communication.node] = &communication;
  }

  // Checks lowered collectives as a whole: the stated layout of the operand must lead to the stated layout of the
  // result, and partial values must be reduced. After run().
  void run_lowered() {
    for (const spmd::LoweredCollective& collective : *program_.lowered) {
      if (!report_.good()) return;
      const Node& node = *collective.statement;
      if (!collective.flaw.empty()) return report("function", node, collective.flaw);
      const Communication communication = statement_of(node, mesh_);
      const auto &before = collective.before, &after = collective.after;
      if (before && after) {
        check_move(communication, *before, *after);
        continue;
      }
      // Without a placement of the operand, the collective's effect on its layout cannot be checked.
      const bool has_part =
          std::any_of(ranks_.begin(), ranks_.end(), [&](int rank) { return gives(communication, rank); });
      if (has_part && !collective.operand.empty() && program_.graph->find(collective.operand))
        report("layout", node,
               fmt::format("{} takes '{}' and gives a result, both of unknown layout because their metadata was lost; "
                           "keep tessera.value, tessera.global and tessera.sharding",
                           node.label(), collective.operand));
    }
  }

  void run() {
    for (const auto& node : program_.graph->nodes()) {
      if (!report_.good()) return;
      if (!operands_live_here(*node)) return;
      auto communication = communications_.find(node.get());
      if (communication != communications_.end())
        transition(*communication->second);
      else
        follow(*node);
    }
    for (const auto& value : program_.graph->values())
      if (value->next && report_.good()) step(*value);
  }

 private:
  // A next value has its state's layout.
  void step(const Value& state) {
    const spmd::Placement *stored = placement(&state), *next = placement(state.next);
    const bool alike = state.next->dtype() == state.dtype() && state.next->has_shape() &&
                       state.next->rank() == state.rank() &&
                       (!stored || !next || same_layout(stored->sharding, next->sharding));
    if (alike && partials(state.next).empty()) return;
    report_.findings.push_back(
        {"layout",
         fmt::format("the state '{}' is {}, but its next value '{}' is {}; give the next value the state's layout",
                     state.name, stored ? stored->sharding.str(mesh_) : "whole", state.next->name,
                     next ? next->sharding.str(mesh_) : "of another type"),
         {{rank_, state.name}}});
  }

  const spmd::Placement* placement(const Value* value) const {
    auto found = program_.placements.find(value);
    return found == program_.placements.end() ? nullptr : &found->second;
  }

  // The axes over which a value is partial, according to its placement or to its computation.
  Partials partials(const Value* value) const {
    if (const spmd::Placement* placed = placement(value)) return placed->sharding.partial;
    auto found = kept_.find(value);
    return found == kept_.end() ? Partials() : found->second;
  }

  void report(std::string_view rule, const Node& node, std::string message) {
    report_.findings.push_back({std::string(rule), std::move(message), {{rank_, node.label()}}});
  }

  // --- places

  static bool has(const Places& place, const PlacedAxis& entry) {
    return std::find(place.begin(), place.end(), entry) != place.end();
  }

  Places place_of(const Value* value) const {
    if (const spmd::Placement* placed = placement(value)) return placed->sharding.at;
    auto found = places_.find(value);
    return found == places_.end() ? Places() : found->second;
  }

  // Whether this rank has zeros instead of the value, which lives on other ranks.
  bool is_absent(const Value* value) const {
    if (const spmd::Placement* placed = placement(value))
      return !placed->sharding.lives_on(mesh_, mesh_.coordinates(rank_));
    return absent_.contains(value);
  }

  // Whether other ranks read this rank's operand of a communication.
  bool gives(const Communication& communication, int rank) const {
    if (communication.kind == comm::Kind::send) {
      const auto to = bind_rank(communication.to, mesh_, mesh_.coordinates(rank)).constant();
      return !to || *to >= 0;
    }
    const std::vector<int> members = group_of(rank, axes_of(communication, mesh_), mesh_);
    return dialect::gives(communication,
                          static_cast<size_t>(std::find(members.begin(), members.end(), rank) - members.begin()));
  }

  // A rank computes and sends only values computed from ones that it has; a Where may select received data instead.
  bool operands_live_here(const Node& node) {
    const auto absent = std::find_if(node.inputs.begin(), node.inputs.end(),
                                     [&](const Value* operand) { return operand && is_absent(operand); });
    if (absent == node.inputs.end()) return true;
    auto communication = communications_.find(&node);
    int64_t user = rank_;
    if (communication != communications_.end()) {
      const auto giver =
          std::find_if(ranks_.begin(), ranks_.end(), [&](int rank) { return gives(*communication->second, rank); });
      if (giver == ranks_.end()) return true;
      user = *giver;
    } else {
      if (made_of_messages(node)) return true;
      bool makes_nothing = true;
      for (const Value* result : node.outputs) {
        if (!result) continue;
        if (!placement(result)) absent_.insert(result);
        makes_nothing &= is_absent(result);
      }
      if (makes_nothing) return true;
    }
    const spmd::Placement* placed = placement(*absent);
    report_.findings.push_back(
        {"layout",
         fmt::format("{} uses '{}' on rank {}, but that {}; move it to the rank first", node.label(),
                     placed ? placed->name : (*absent)->name, user,
                     placed ? "is " + placed->sharding.str(mesh_) : "is computed from a value at another place"),
         {{user, node.label()}}});
    return false;
  }

  // A value computed from one that lives at a place lives there, too; dropping a replica is free.
  void follow_place(const Node& node) {
    for (const Value* operand : node.inputs) {
      if (!operand) continue;
      for (const PlacedAxis& entry : place_of(operand))
        for (const Value* result : node.outputs) {
          if (!result || has(place_of(result), entry)) continue;
          if (!placement(result)) {
            places_[result].push_back(entry);
            continue;
          }
          return report("layout", node,
                        fmt::format("{} makes '{}' from a value only at({}), but states it as {}", node.label(),
                                    placement(result)->name, print_place({entry}, mesh_),
                                    placement(result)->sharding.str(mesh_)));
        }
    }
  }

  // --- communication

  void transition(const Communication& communication) {
    const Node& node = *communication.node;
    if (communication.kind == comm::Kind::recv) received_.insert(node.output(0));
    if (communication.is_message() || communication.kind == comm::Kind::barrier) return;
    const Value* out = node.output(0);
    const spmd::Placement *before = placement(node.input(0)), *after = placement(out);
    if (!before || !after) {
      kept_[out] = remaining(communication, node.input(0));
      return;
    }
    check_move(communication, *before, *after);
  }

  // Whether the communication turns one layout into the other.
  void check_move(const Communication& communication, const spmd::Placement& before, const spmd::Placement& after) {
    const Node& node = *communication.node;
    for (const spmd::Placement* placed : {&before, &after})
      if (!communication.value.empty() && placed->name != communication.value)
        return report("layout", node,
                      fmt::format("{} says that it moves '{}', but its {} is a part of '{}'", node.label(),
                                  communication.value, placed == &before ? "operand" : "result", placed->name));
    if (auto misfit = misfit_of(communication, before.sharding, after.sharding, mesh_))
      report(misfit->rule, node, std::move(misfit->message));
  }

  // For an operand without a placement, the partial axes after the communication.
  Partials remaining(const Communication& communication, const Value* operand) {
    Partials result = partials(operand);
    if (traits_of(communication.kind).reduces)
      for (const AxisRef& axis : axes_of(communication, mesh_)) take(result, axis, communication.reduction);
    return result;
  }

  // --- all other nodes

  // A value computed from messages has the layout that the program states, since messages may carry the terms of a sum.
  bool made_of_messages(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](const Value* operand) { return operand && received_.contains(operand); });
  }

  void follow(const Node& node) {
    if (made_of_messages(node)) {
      for (const Value* result : node.outputs)
        if (result && !placement(result)) received_.insert(result);
      return;
    }
    follow_place(node);
    if (!report_.good()) return;
    Partials seen;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (const Value* operand = node.inputs[i]; operand && ops::reads_elements(node, i))
        for (const PartialAxis& axis : partials(operand))
          if (std::find(seen.begin(), seen.end(), axis) == seen.end()) seen.push_back(axis);
    if (seen.empty()) return;
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    std::vector<ops::PartialSet> sets;
    if (op && op->rule) sets = op->rule(node).partials;
    for (const PartialAxis& axis : seen) {
      if (!keeps(node, sets, axis)) {
        report("partial", node,
               fmt::format("{} uses {} as if it were whole, but it is {}; reduce it first", node.label(),
                           partial_operand(node, axis), shown(axis)));
        return;
      }
      for (const Value* result : node.outputs) {
        if (!result) continue;
        const spmd::Placement* placed = placement(result);
        if (!placed) {
          kept_[result].push_back(axis);
          continue;
        }
        Partials stated = placed->sharding.partial;
        if (!take(stated, axis.axis, axis.reduction)) {
          report("partial", node,
                 fmt::format("{} makes '{}' from {}, which is {}, but '{}' is stated as {}", node.label(), result->name,
                             partial_operand(node, axis), shown(axis), placed->name, placed->sharding.str(mesh_)));
          return;
        }
      }
    }
  }

  bool is_partial(const Value* value, const PartialAxis& axis) const {
    Partials list = partials(value);
    return std::find(list.begin(), list.end(), axis) != list.end();
  }

  // Whether a set of operands that may be partial together contains all partial ones, and no operand that is whole on
  // every rank.
  bool keeps(const Node& node, const std::vector<ops::PartialSet>& sets, const PartialAxis& axis) const {
    return std::any_of(sets.begin(), sets.end(), [&](const ops::PartialSet& set) {
      if (set.reduction != axis.reduction) return false;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Value* operand = node.inputs[i];
        if (!operand) continue;
        bool in_set = std::find(set.operands.begin(), set.operands.end(), static_cast<int>(i)) != set.operands.end();
        if (is_partial(operand, axis) ? !in_set : in_set && placement(operand)) return false;
      }
      return true;
    });
  }

  std::string partial_operand(const Node& node, const PartialAxis& axis) const {
    for (const Value* operand : node.inputs)
      if (operand && is_partial(operand, axis)) {
        const spmd::Placement* placed = placement(operand);
        return "'" + (placed ? placed->name : operand->name) + "'";
      }
    return "";
  }

  std::string shown(const PartialAxis& axis) const {
    return fmt::format("partial({}:{})", name_of(axis.reduction), axis.axis.str(mesh_));
  }

  const spmd::Program& program_;
  const Mesh& mesh_;
  const std::vector<int>& ranks_;
  int64_t rank_;  // the first of them
  Report& report_;
  std::map<const Node*, const Communication*> communications_;
  std::map<const Value*, Partials> kept_;  // of values without placements
  std::map<const Value*, Places> places_;  // of values without placements
  std::set<const Value*> absent_;          // without placements, computed from values on other ranks
  std::set<const Value*> received_;        // without placements, computed from messages
};

}  // namespace

void check_layouts(const spmd::Program& program, const std::vector<Communication>& communications,
                   const std::vector<int>& ranks, Report& report) {
  LayoutCheck check(program, communications, ranks, report);
  check.run();
  if (program.lowered && !program.as_written) check.run_lowered();
}

}  // namespace tessera::proof
