#include "tessera/passes/stage_order.h"

#include <algorithm>
#include <limits>

#include "tessera/passes/dependences.h"
#include "tessera/schedule/cell_order.h"

namespace tessera::passes {
namespace {

using schedule::CellOrder;
using schedule::Work;
using spmd::Program;

class StageOrder {
 public:
  StageOrder(const Program& program, const CellOrder& cells)
      : program_(program), cells_(cells), dependences_(*program.graph), at_(nodes_.size(), kNowhere) {}

  std::vector<Node*> run() {
    find_state_only();
    find_lowest_stages();
    for (size_t n = 0; n < nodes_.size(); ++n)
      if (is_staged(*nodes_[n]) && !of_states_[n]) take_seat(n);
    place_after_needs();
    place_before_users();
    std::vector<size_t> order(nodes_.size());
    for (size_t n = 0; n < order.size(); ++n) order[n] = n;
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) { return at_[a] < at_[b]; });
    std::vector<Node*> arranged;
    for (const size_t n : order) arranged.push_back(nodes_[n]);
    return arranged;
  }

 private:
  static constexpr int64_t kNowhere = -1;

  bool is_staged(const Node& node) const { return node.seat.is_staged() && !moves_to_another_stage(node); }

  bool moves_to_another_stage(const Node& node) const {
    return node.domain == spmd::kCommDomain && node.input(0) && node.output() &&
           place_of(node.input(0)) != place_of(node.output());
  }

  std::vector<PlacedAxis> place_of(const Value* value) const {
    const auto found = program_.placements.find(value);
    return found == program_.placements.end() ? std::vector<PlacedAxis>() : found->second.sharding.at;
  }

  void take_seat(size_t n) {
    Seat& seat = nodes_[n]->seat;
    const Work work = work_of(n);
    at_[n] = cells_.of(work, seat.stage, seat.micro_batch);
    if (!seat.is_backward() || !cells_.divides(seat.stage, seat.micro_batch)) return;
    seat.segment = work == Work::input_gradient ? Segment::input_gradient : Segment::weight_gradient;
  }

  // Gathers, casts and transposes of parameters serve any cell, and come before the first that reads them.
  void find_state_only() {
    of_states_.assign(nodes_.size(), false);
    for (size_t n = 0; n < nodes_.size(); ++n) {
      bool any = false, all = true;
      for (const Value* operand : nodes_[n]->inputs) {
        if (!operand || operand->kind == ValueKind::constant || operand->kind == ValueKind::expression) continue;
        any = true;
        all = all && (operand->producer ? of_states_[static_cast<size_t>(dependences_.index.at(operand->producer))]
                                        : operand->kind == ValueKind::state);
      }
      of_states_[n] = any && all;
    }
  }

  // For each node of a backward pass, the lowest stage of its micro-batch that depends on it, and whether what depends
  // on it within its stage reads results of the forward pass.
  void find_lowest_stages() {
    lowest_.assign(nodes_.size(), std::numeric_limits<int>::max());
    is_read_on_.assign(nodes_.size(), false);
    for (size_t n = nodes_.size(); n-- > 0;) {
      const Node& node = *nodes_[n];
      if (node.seat.is_staged() && node.seat.is_backward()) lowest_[n] = node.seat.stage;
      for (const int later : dependences_.after[n]) {
        const Node& user = *nodes_[static_cast<size_t>(later)];
        if (!node.seat.is_staged() || user.seat.micro_batch != node.seat.micro_batch) continue;
        lowest_[n] = std::min(lowest_[n], lowest_[static_cast<size_t>(later)]);
        if (user.seat.stage == node.seat.stage && user.seat.is_backward())
          is_read_on_[n] = is_read_on_[n] || is_read_on_[static_cast<size_t>(later)] || reads_forward(user);
      }
    }
  }

  static bool reads_forward(const Node& node) {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [](const Value* operand) {
      return operand && operand->producer && operand->producer->seat.is_staged() &&
             !operand->producer->seat.is_backward();
    });
  }

  Work work_of(size_t n) const {
    const Node& node = *nodes_[n];
    if (!node.seat.is_backward()) return Work::forward;
    const bool is_first = node.seat.stage == 0;
    return lowest_[n] < node.seat.stage || (is_first && is_read_on_[n]) ? Work::input_gradient : Work::weight_gradient;
  }

  void place_after_needs() {
    for (size_t n = 0; n < nodes_.size(); ++n)
      for (const int later : dependences_.after[n])
        at_[static_cast<size_t>(later)] = std::max(at_[static_cast<size_t>(later)], at_[n]);
  }

  void place_before_users() {
    for (size_t n = nodes_.size(); n-- > 0;) {
      if (at_[n] != kNowhere) continue;
      int64_t first = std::numeric_limits<int64_t>::max();
      for (const int later : dependences_.after[n]) first = std::min(first, at_[static_cast<size_t>(later)]);
      at_[n] = first;
    }
  }

  const Program& program_;
  const CellOrder& cells_;
  const Dependences dependences_;
  const std::vector<Node*>& nodes_ = dependences_.nodes;
  std::vector<int64_t> at_;  // by node: the cell that it is in, or that it follows or precedes
  std::vector<bool> of_states_;
  std::vector<int> lowest_;
  std::vector<bool> is_read_on_;
};

}  // namespace

void stage_order(Program& program, Context& context) {
  if (context.cells) program.graph->arrange(StageOrder(program, *context.cells).run());
}

}  // namespace tessera::passes
