// An order of the forward pass. Operands with more nodes behind them come first, each directly before what needs it:
//
//     e1 ─▶ e2 ──────────┐                                    e1 e2 d0 d1 d2
//     d0 ────────▶ d1 ─▶ d2      (an encoder, e, of which     not d0 e1 e2 d1 d2, where d0 would be alive beside e1
//                                 a decoder's layer reads)
//
// A node then moves down to its first reader, with what only it reads, unless more bytes are alive meanwhile: the keys
// that a layer computes from the encoder's result. Each place between two nodes is a possible end of a stage, and costs
// the bytes alive there.
#include "tessera/stages/chain.h"

#include <algorithm>
#include <list>
#include <map>

namespace tessera::stages {
namespace {

class Ordering {
 public:
  Ordering(const OneBatch& batch, const Roles& roles, const Measure& measure)
      : batch_(batch), roles_(roles), measure_(measure), depth_(roles.of.size()) {}

  std::vector<int> run() {
    std::vector<int> ends;
    for (int i = 0; i < batch_.size(); ++i) {
      if (!in_chain(i)) continue;
      for (int maker : makers(i)) depth_[at(i)] = std::max(depth_[at(i)], depth_[at(maker)] + 1);
      const auto& readers = batch_.readers(i);
      if (std::none_of(readers.begin(), readers.end(), [&](int reader) { return in_chain(reader); })) ends.push_back(i);
    }
    // An output of an early layer stands beside that layer.
    std::stable_sort(ends.begin(), ends.end(), [&](int a, int b) { return depth_[at(a)] < depth_[at(b)]; });
    placed_.assign(depth_.size(), false);
    for (int end : ends) visit(end);
    return moved_down();
  }

 private:
  static size_t at(int node) { return static_cast<size_t>(node); }
  bool in_chain(int node) const { return roles_.of[at(node)] == Role::chain; }

  std::vector<int> makers(int node) const {
    std::vector<int> found;
    for (const OneBatch::Operand& operand : batch_.operands(node))
      if (operand.made_by >= 0 && in_chain(operand.made_by)) found.push_back(operand.made_by);
    return found;
  }

  void visit(int end) {
    struct Open {
      int node;
      std::vector<int> waiting;  // the next one last
    };
    std::vector<Open> open;
    const auto enter = [&](int node) {
      if (placed_[at(node)]) return;
      placed_[at(node)] = true;
      std::vector<int> waiting = makers(node);
      std::stable_sort(waiting.begin(), waiting.end(), [&](int a, int b) { return depth_[at(a)] > depth_[at(b)]; });
      std::reverse(waiting.begin(), waiting.end());
      open.push_back({node, std::move(waiting)});
    };
    enter(end);
    while (!open.empty()) {
      if (open.back().waiting.empty()) {
        order_.push_back(open.back().node);
        open.pop_back();
      } else {
        const int next = open.back().waiting.back();
        open.back().waiting.pop_back();
        enter(next);
      }
    }
  }

  std::vector<int> readers(int node) const {
    std::vector<int> found;
    for (int reader : batch_.readers(node))
      if (in_chain(reader)) found.push_back(reader);
    return found;
  }

  std::vector<int> moved_down() const {
    std::vector<size_t> place(depth_.size());
    for (size_t p = 0; p < order_.size(); ++p) place[at(order_[p])] = p;
    std::list<int> moved;
    std::vector<std::list<int>::iterator> found(depth_.size());
    std::vector<bool> grouped(depth_.size()), moves(depth_.size());
    std::map<int, std::map<size_t, int>> before;  // by reader and operand, the first node of a group that has moved
    for (auto node = order_.rbegin(); node != order_.rend(); ++node) {
      const std::vector<int> own = readers(*node);
      auto target = moved.begin();
      if (moves[at(*node)]) {
        target = found[at(own.front())];
      } else if (!grouped[at(*node)] && !own.empty() && may_move(own, moves)) {
        const int first =
            *std::min_element(own.begin(), own.end(), [&](int a, int b) { return place[at(a)] < place[at(b)]; });
        const std::vector<int> group = group_of(*node);
        const bool all = shortens(*node, group.back(), place, place[at(first)]);
        for (int member : group) {
          grouped[at(member)] = true;
          moves[at(member)] = all;
        }
        if (all) {  // those that move to one reader stand in the order of its operands
          const size_t operand = operand_of(first, *node);
          const auto next = before[first].upper_bound(operand);
          target = found[at(next == before[first].end() ? first : next->second)];
          before[first][operand] = group.back();
        }
      }
      found[at(*node)] = moved.insert(target, *node);
    }
    return {moved.begin(), moved.end()};
  }

  // Several readers that have moved may stand in another order.
  static bool may_move(const std::vector<int>& readers, const std::vector<bool>& moves) {
    return readers.size() == 1 || std::none_of(readers.begin(), readers.end(), [&](int r) { return moves[at(r)]; });
  }

  size_t operand_of(int reader, int maker) const {
    const auto& operands = batch_.operands(reader);
    return static_cast<size_t>(
        std::find_if(operands.begin(), operands.end(), [&](const auto& operand) { return operand.made_by == maker; }) -
        operands.begin());
  }

  // The node and those before it of which each is all that the next one reads, and has no other reader.
  std::vector<int> group_of(int node) const {
    std::vector<int> group = {node};
    for (std::vector<int> own = makers(node); own.size() == 1 && readers(own.front()).size() == 1;
         own = makers(group.back()))
      group.push_back(own.front());
    return group;
  }

  // Whether the results of a group's last node are as many bytes as those operands of its first one that it alone would
  // keep alive until a place, or more.
  bool shortens(int last, int first, const std::vector<size_t>& place, size_t until) const {
    double made = 0, kept = 0;
    for (const Value* result : batch_.node(last).outputs)
      if (result) made += measure_.bytes(*result);
    for (const auto& [value, made_by] : batch_.operands(first)) {
      if (made_by < 0 || !in_chain(made_by)) continue;
      const std::vector<int> others = readers(made_by);
      const bool alive = std::any_of(others.begin(), others.end(),
                                     [&](int reader) { return reader != first && place[at(reader)] >= until; });
      if (!alive) kept += measure_.bytes(*value);
    }
    return made >= kept;
  }

  const OneBatch& batch_;
  const Roles& roles_;
  const Measure& measure_;
  std::vector<int> depth_, order_;
  std::vector<bool> placed_;  // or on the way
};

// The place of the last node of the chain that reads the value; -1: none does.
int last_reader(const Chain& chain, const OneBatch& batch, const Value& value) {
  int last = -1;
  for (int reader : batch.readers(batch.maker(&value))) {
    const auto& operands = batch.operands(reader);
    const bool reads =
        std::any_of(operands.begin(), operands.end(), [&](const auto& operand) { return operand.value == &value; });
    if (reads) last = std::max(last, chain.place[static_cast<size_t>(reader)]);
  }
  return last;
}

}  // namespace

Chain chain_of(const OneBatch& batch, const Roles& roles, const Measure& measure) {
  Chain chain;
  chain.nodes = Ordering(batch, roles, measure).run();
  chain.place.assign(roles.of.size(), -1);
  for (int p = 0; p < chain.size(); ++p) chain.place[static_cast<size_t>(chain.nodes[static_cast<size_t>(p)])] = p;
  std::vector<double> change(chain.nodes.size() + 1);
  for (size_t p = 0; p < chain.nodes.size(); ++p)
    for (const Value* result : batch.node(chain.nodes[p]).outputs) {
      if (!result) continue;
      const int last = last_reader(chain, batch, *result);
      if (last < 0) continue;
      const double bytes = measure.bytes(*result);
      change[p] += bytes;
      change[static_cast<size_t>(last)] -= bytes;
    }
  double sum = 0;
  for (size_t p = 0; p < chain.nodes.size(); ++p) chain.alive.push_back(sum += change[p]);
  return chain;
}

const Value* largest_alive(const Chain& chain, const OneBatch& batch, const Measure& measure, int place) {
  const Value* largest = nullptr;
  for (int p = 0; p <= place; ++p)
    for (const Value* result : batch.node(chain.nodes[static_cast<size_t>(p)]).outputs) {
      if (!result || last_reader(chain, batch, *result) <= place) continue;
      if (!largest || measure.bytes(*result) >= measure.bytes(*largest)) largest = result;
    }
  return largest;
}

}  // namespace tessera::stages
