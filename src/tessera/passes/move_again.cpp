#include "tessera/passes/move_again.h"

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <unordered_map>

#include "tessera/ir/flow.h"
#include "tessera/ops/op.h"
#include "tessera/passes/copy_node.h"
#include "tessera/passes/live_bytes.h"
#include "tessera/passes/node_work.h"

namespace tessera::passes {
namespace {

using spmd::Program;

/// A reader at most this many nodes behind another one shares what that one reads.
constexpr size_t kNear = 32;

/// The most that moving elements again may take of the time of those that read them.
constexpr double kLittle = 1.0 / 50;

/// Goes from the last node to the first, so that a copy's own reads are known when what it reads is considered: of two
/// movements, one after the other, both may be done again.
class Mover {
 public:
  /// `prices`: of a machine; null: none is named. `at_any_cost`: also where it takes long.
  Mover(Program& program, const cost::Prices* prices, bool at_any_cost)
      : program_(program), graph_(*program.graph), prices_(prices), at_any_cost_(at_any_cost), live_(program) {
    std::set<const Value*> of_states;
    for (const auto& value : graph_.values())
      if (value->kind == ValueKind::state) of_states.insert(value.get());
    for (const auto& node : graph_.nodes()) {
      const size_t at = position_.emplace(node.get(), position_.size()).first->second;
      for (const Value* home : live_.read_by(*node)) last_read_[home] = at;
      if (std::any_of(node->inputs.begin(), node->inputs.end(), [&](const Value* x) { return of_states.contains(x); }))
        for (const Value* result : node->outputs)
          if (result) of_states.insert(result);
      if (of_states.contains(node->output()) && moves_only(*node)) movements_.push_back(node.get());
    }
    for (const Value* home : live_.kept()) last_read_[home] = kNever;
    for (const auto& value : graph_.values())
      if (value->next && value->next->producer) overwritten_[value.get()] = position_.at(value->next->producer);
  }

  void run() {
    for (auto node = movements_.rbegin(); node != movements_.rend(); ++node) divide_readers(**node);
  }

 private:
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();             // it is read after the last node
  static constexpr double kUnavailable = std::numeric_limits<double>::infinity();  // no bytes suffice

  struct Reader {
    Node* node;
    size_t operand, at;
  };

  // With memory of its own for its result.
  bool moves_only(const Node& node) const { return moves_elements(node) && live_.home(node.output()) == node.output(); }

  // Of a result, and of views of it (Reshape), in the program's order.
  std::vector<Reader> readers_of(const Value* result) const {
    std::vector<Reader> readers;
    std::vector<const Value*> open = {result};
    while (!open.empty()) {
      const Value* value = open.back();
      open.pop_back();
      for (const Use& use : value->uses)
        if (const Value* made = use.node->output(); made && live_.home(made) == result)
          open.push_back(made);
        else
          readers.push_back({use.node, use.index, position_.at(use.node)});
    }
    std::stable_sort(readers.begin(), readers.end(), [](const Reader& a, const Reader& b) { return a.at < b.at; });
    return readers;
  }

  // Bytes that must be held until a node reads the operand, if nothing but the node asks for it.
  double held_for(const Value* operand, size_t at) const {
    const Value* home = live_.home(operand);
    if (!home) {
      const Value* source = operand;  // of a view
      while (source->producer) source = source->producer->input(0);
      const auto overwritten = overwritten_.find(source);
      return overwritten == overwritten_.end() || at < overwritten->second ? 0 : kUnavailable;
    }
    const auto read = last_read_.find(home);
    if (read != last_read_.end() && read->second >= at) return 0;
    const Node* maker = home->producer;
    return moves_only(*maker) ? std::min(live_.of(home), held_for(*maker, at)) : live_.of(home);
  }
  double held_for(const Node& node, size_t at) const {
    double bytes = 0;
    for (const Value* operand : node.inputs)
      if (operand) bytes += held_for(operand, at);
    return bytes;
  }

  void divide_readers(const Node& node) {
    const Value* result = node.output();
    if (last_read_[result] == kNever) return;
    size_t last = position_.at(&node);
    std::unordered_map<const Value*, Value*> copies;  // for the readers since the last that was far from others
    const std::vector<Reader> readers = readers_of(result);
    for (auto reader = readers.begin(); reader != readers.end(); ++reader) {
      if (reader->at > last + kNear && held_for(node, reader->at) < live_.of(result) &&
          takes_little(node, {reader, readers.end()}))
        copies = {{result, nullptr}};
      last = reader->at;
      if (!copies.empty())
        graph_.set_input(reader->node, reader->operand,
                         copy_of(reader->node->inputs[reader->operand], *reader, copies));
    }
  }

  // Whether the node takes a small part of the time of the first of these readers, and of those that are near them.
  bool takes_little(const Node& node, std::span<const Reader> readers) const {
    if (at_any_cost_) return true;
    const double most = cost_of(node, program_, prices_) / kLittle;
    double work = 0;
    size_t last = readers.front().at;
    for (const Reader& reader : readers) {
      if (reader.at > last + kNear) break;
      last = reader.at;
      if ((work += work_of_reader(*reader.node)) >= most) return true;
    }
    return false;
  }

  // What only moves the elements further, or gathers them, counts as those that read them then.
  double work_of_reader(const Node& node) const {
    const auto known = work_.find(&node);
    if (known != work_.end()) return known->second;
    double work = cost_of(node, program_, prices_);
    if (const Value* made = node.output(); made && (moves_elements(node) || node.domain == spmd::kCommDomain))
      for (const Reader& reader : readers_of(made)) work += work_of_reader(*reader.node);
    work_[&node] = work;
    return work;
  }

  // The result, or a view of it, made again for a reader.
  Value* copy_of(Value* value, const Reader& reader, std::unordered_map<const Value*, Value*>& copies) {
    Value*& known = copies[value];
    if (known) return known;
    const Node& maker = *value->producer;
    std::vector<Value*> operands = maker.inputs;
    if (live_.home(value) != value) operands[0] = copy_of(operands[0], reader, copies);
    const Node* copy = copy_node(program_, maker, std::move(operands), reader.node);
    position_[copy] = reader.at;
    for (const Value* home : live_.read_by(maker))
      if (home != live_.home(value)) last_read_[home] = std::max(last_read_[home], reader.at);
    return copies[value] = copy->output();
  }

  Program& program_;
  Graph& graph_;
  const cost::Prices* prices_;
  const bool at_any_cost_;
  const LiveBytes live_;  // of the original program
  std::unordered_map<const Node*, size_t> position_;
  mutable std::unordered_map<const Node*, double> work_;  // of readers
  std::unordered_map<const Value*, size_t> last_read_;    // of a home
  std::unordered_map<const Value*, size_t> overwritten_;  // of a state: where its next value is made
  std::vector<const Node*> movements_;                    // of what depends on states
};

bool updates_states(const Graph& graph) {
  return std::any_of(graph.values().begin(), graph.values().end(), [](const auto& value) { return value->next; });
}

}  // namespace

bool moves_elements(const Node& node) {
  return node.outputs.size() == 1 && ops::moves_of(node) >= ops::Moves::part;
}

void move_again(Program& program, Context& context) {
  if (!updates_states(*program.graph) || flow::has_flow(*program.graph)) return;
  const bool must_free = context.recompute.kind == Recompute::Kind::by_cost && context.recompute.bytes_to_free > 0;
  Mover(program, context.prices, must_free).run();
  spmd::erase_dead(program);
}

}  // namespace tessera::passes
