#include "tessera/rewrite/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/rewrite/node_kinds.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

constexpr size_t kLongestPeriod = 4096;  // nodes of a block; the search looks at all shorter ones

/// Where the nodes of a run stand, and whether they form blocks.
class Runs {
 public:
  explicit Runs(const Graph& graph) : graph_(graph) {
    std::map<std::string, int> numbers;
    for (const auto& node : graph.nodes()) {
      position_.emplace(node.get(), nodes_.size());
      nodes_.push_back(node.get());
      kinds_.push_back(numbers.emplace(kind_of(*node), static_cast<int>(numbers.size())).first->second);
    }
    outputs_.insert(graph.outputs.begin(), graph.outputs.end());
  }

  std::optional<Blocks> longest() const {
    std::optional<Blocks> best;
    const auto held = [](const Blocks& blocks) { return blocks.period * (blocks.count - 1); };
    for (const Candidate& run : candidates()) {
      if (best && run.length <= held(*best)) break;
      for (size_t begin = run.begin; begin + run.period <= run.begin + run.length; ++begin) {
        const Blocks made{begin, run.period, count_from(begin, run.period)};
        if (made.count < 2) continue;
        if (!best || held(made) > held(*best)) best = made;
        // Another start within this block may give one block more; further ones give fewer.
        if (begin >= run.begin + run.period) begin += held(made);
      }
    }
    return best;
  }

 private:
  // Nodes begin … begin + length - 1 are each of the same kind as the node a period later.
  struct Candidate {
    size_t begin, period, length;
  };

  std::vector<Candidate> candidates() const {
    std::vector<Candidate> all;
    const size_t nodes = nodes_.size();
    for (size_t period = 1; period <= std::min(nodes / 2, kLongestPeriod); ++period)
      for (size_t begin = 0, x = 0; x + period <= nodes; ++x)
        if (x + period == nodes || kinds_[x] != kinds_[x + period]) {
          if (x - begin >= period) all.push_back({begin, period, x - begin});
          begin = x + 1;
        }
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.length > b.length; });
    return all;
  }

  // The number of blocks from there.
  size_t count_from(size_t begin, size_t period) const {
    size_t count = 1;
    std::vector<bool> owned;
    while (begin + (count + 1) * period <= nodes_.size()) {
      const size_t block = begin + (count - 1) * period;
      if (!follows(begin, block, period, owned) || !may_be_followed(begin, block, period) ||
          !has_private_sources(block, period))
        break;
      ++count;
    }
    const size_t last = begin + (count - 1) * period;
    return has_private_sources(last, period) && makes_outputs_like(begin, last, period) ? count : count - 1;
  }

  // Whether the block after the one that begins at `block` is like it. `owned`: by operand, whether each block has a
  // source of its own; set by the first two blocks.
  bool follows(size_t begin, size_t block, size_t period, std::vector<bool>& owned) const {
    std::map<const Value*, const Value*> carried, own, owners;
    std::vector<bool> owns;
    for (size_t x = block; x < block + period; ++x) {
      const Node& node = *nodes_[x];
      const Node& next = *nodes_[x + period];
      if (kinds_[x] != kinds_[x + period]) return false;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Value* a = node.inputs[i];
        const Value* b = next.inputs[i];
        owns.push_back(false);
        if (a == b) {
          if (a && a->producer && position_.at(a->producer) >= begin) return false;
        } else if (!a || !b) {
          return false;
        } else if (b->producer) {
          const size_t at = position_.at(b->producer);
          if (at < block) return false;
          // Carried into the first block, it comes from elsewhere.
          if (at < block + period && block == begin) {
            if (a->producer && position_.at(a->producer) >= begin) return false;
            if (!carried.emplace(b, a).second && carried.at(b) != a) return false;
          } else if (!corresponds(a, b, period)) {
            return false;
          }
        } else {
          owns.back() = true;
          if (!are_alike(*a, *b)) return false;
          if (!own.emplace(a, b).second && own.at(a) != b) return false;
          if (!owners.emplace(b, a).second && owners.at(b) != a) return false;
        }
      }
    }
    if (owned.empty()) owned = owns;
    return owned == owns;
  }

  bool corresponds(const Value* a, const Value* b, size_t period) const {
    if (!a->producer || position_.at(a->producer) + period != position_.at(b->producer)) return false;
    return index_of(a) == index_of(b);
  }

  static size_t index_of(const Value* result) {
    const std::vector<Value*>& results = result->producer->outputs;
    return static_cast<size_t>(std::find(results.begin(), results.end(), result) - results.begin());
  }

  // Sources that two blocks have of their own. The keys of their nodes have said that types, and data of constants, are
  // equal.
  static bool are_alike(const Value& a, const Value& b) {
    return !a.producer && a.kind != ValueKind::expression && a.kind == b.kind && a.type == b.type && !a.next &&
           !b.next && a.changing == b.changing;
  }

  // Whether no other node uses the sources that only this block uses: those that its own nodes use first.
  bool has_private_sources(size_t block, size_t period) const {
    const auto within = [&](const Use& use) {
      const size_t at = position_.at(use.node);
      return at >= block && at < block + period;
    };
    for (size_t x = block; x < block + period; ++x)
      for (const Value* value : nodes_[x]->inputs) {
        if (!value || value->producer || value->kind == ValueKind::constant) continue;
        const bool some = std::any_of(value->uses.begin(), value->uses.end(), within);
        const bool all = std::all_of(value->uses.begin(), value->uses.end(), within);
        if (some && !all && !is_common(value, block, period)) return false;
      }
    return true;
  }

  // Whether the nodes a period earlier or later use the same source: it is common to all blocks, or follows() finds
  // out.
  bool is_common(const Value* value, size_t block, size_t period) const {
    for (const Use& use : value->uses) {
      const size_t at = position_.at(use.node);
      if (at < block || at >= block + period) continue;
      const auto uses_it = [&](size_t other) {
        return other < nodes_.size() && use.index < nodes_[other]->inputs.size() &&
               nodes_[other]->inputs[use.index] == value;
      };
      if (!uses_it(at + period) && !(at >= period && uses_it(at - period))) return false;
    }
    return true;
  }

  // Whether only the block itself and the next one use its results, and it makes the outputs that the first one makes.
  bool may_be_followed(size_t begin, size_t block, size_t period) const {
    for (size_t x = block; x < block + period; ++x)
      for (size_t i = 0; i < nodes_[x]->outputs.size(); ++i) {
        const Value* result = nodes_[x]->outputs[i];
        if (!result) continue;
        for (const Use& use : result->uses)
          if (position_.at(use.node) >= block + 2 * period) return false;
        if (outputs_.contains(result) != outputs_.contains(nodes_[begin + (x - block)]->outputs[i])) return false;
      }
    return true;
  }

  // The last block may make more outputs than the others.
  bool makes_outputs_like(size_t begin, size_t last, size_t period) const {
    for (size_t offset = 0; offset < period; ++offset)
      for (size_t i = 0; i < nodes_[begin + offset]->outputs.size(); ++i)
        if (outputs_.contains(nodes_[begin + offset]->outputs[i]) &&
            !outputs_.contains(nodes_[last + offset]->outputs[i]))
          return false;
    return true;
  }

  const Graph& graph_;
  std::vector<const Node*> nodes_;
  std::vector<int> kinds_;  // by node: equal for nodes of equal keys
  std::unordered_map<const Node*, size_t> position_;
  std::set<const Value*> outputs_;
};

// Node `offset` of a block.
Node* node_of(const Graph& graph, const Blocks& blocks, size_t block, size_t offset) {
  return graph.nodes()[blocks.begin + block * blocks.period + offset].get();
}

// The values that the first block takes, and those that it passes on in their place, by name.
std::map<std::string, std::string> carried_by(const Graph& graph, const Blocks& blocks) {
  std::set<const Value*> first;
  for (size_t offset = 0; offset < blocks.period; ++offset)
    for (const Value* result : node_of(graph, blocks, 0, offset)->outputs) first.insert(result);
  std::map<std::string, std::string> names;
  for (size_t offset = 0; offset < blocks.period; ++offset) {
    const Node* node = node_of(graph, blocks, 0, offset);
    const Node* next = node_of(graph, blocks, 1, offset);
    for (size_t i = 0; i < next->inputs.size(); ++i)
      if (next->inputs[i] && first.contains(next->inputs[i]))
        names.emplace(node->inputs[i]->name, next->inputs[i]->name);
  }
  return names;
}

// Whether what a block passes on has the type of what it takes. If not, blocks differ in their extents.
bool keeps_types(const OnnxModel& model, const Blocks& blocks) {
  const std::map<std::string, std::string> carried = carried_by(*model.graph, blocks);
  std::set<std::string> kept;
  for (const auto& [taken, passed] : carried) kept.insert({taken, passed});
  const std::optional<OnnxModel> rewritten = rewritten_if_possible(with_blocks(model, blocks, 2), kept);
  if (!rewritten) return false;
  return std::all_of(carried.begin(), carried.end(), [&](const auto& pair) {
    const Value* taken = rewritten->graph->find(pair.first);
    const Value* passed = rewritten->graph->find(pair.second);
    return taken && passed && taken->type == passed->type;
  });
}

}  // namespace

std::optional<Blocks> find_blocks(const OnnxModel& model) {
  const std::optional<Blocks> found = Runs(*model.graph).longest();
  return found && keeps_types(model, *found) ? found : std::nullopt;
}

OnnxModel with_blocks(const OnnxModel& model, const Blocks& blocks, size_t count) {
  check(count >= 1 && count <= blocks.count, "a model keeps at least one of its blocks");
  OnnxModel made = model.clone();
  if (count == blocks.count) return made;
  Graph& graph = *made.graph;
  std::map<std::string, Value*> renamed;  // outputs whose names come from the last block
  std::set<const Value*> dropped;         // outputs that each block has of its own
  for (size_t offset = 0; offset < blocks.period; ++offset) {
    const std::vector<Value*>& results = node_of(graph, blocks, 0, offset)->outputs;
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i] && graph.is_output(results[i]))
        for (size_t block = count; block < blocks.count; ++block)
          dropped.insert(node_of(graph, blocks, block, offset)->outputs[i]);
  }
  std::erase_if(graph.outputs, [&](const Value* output) { return dropped.contains(output); });
  std::vector<Node*> nodes;
  for (size_t at = blocks.begin + count * blocks.period; at < blocks.begin + blocks.count * blocks.period; ++at)
    nodes.push_back(graph.nodes()[at].get());
  for (size_t offset = 0; offset < blocks.period; ++offset) {
    const std::vector<Value*> kept = node_of(graph, blocks, count - 1, offset)->outputs;
    const std::vector<Value*> last = node_of(graph, blocks, blocks.count - 1, offset)->outputs;
    for (size_t i = 0; i < last.size(); ++i) {
      if (!last[i] || !kept[i]) continue;
      if (graph.is_output(last[i])) renamed.emplace(last[i]->name, kept[i]);
      graph.replace_uses(last[i], kept[i]);
    }
  }
  std::set<Value*> sources;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    for (Value* operand : (*node)->inputs)
      if (operand && !operand->producer) sources.insert(operand);
    graph.erase(*node);
  }
  for (Value* source : sources)
    if (source->uses.empty() && !graph.is_output(source)) {
      std::erase(graph.inputs, source);
      graph.erase(source);
    }
  for (const auto& [name, value] : renamed) graph.rename(value, name);
  return made;
}

std::vector<std::vector<std::string_view>> names_by_block(const Graph& graph, const Blocks& blocks) {
  std::vector<std::vector<std::string_view>> all;
  const auto add = [&](const auto& value_of) {
    std::vector<std::string_view> names;
    for (size_t block = 0; block < blocks.count; ++block)
      if (const Value* value = value_of(block)) names.push_back(value->name);
    if (names.size() > 1 && names[0] != names[1]) all.push_back(std::move(names));
  };
  for (size_t offset = 0; offset < blocks.period; ++offset) {
    const Node* first = node_of(graph, blocks, 0, offset);
    for (size_t i = 0; i < first->inputs.size(); ++i)
      if (first->inputs[i] && !first->inputs[i]->producer)
        add([&](size_t block) -> const Value* {
          const Value* source = node_of(graph, blocks, block, offset)->inputs[i];
          return source->producer ? nullptr : source;
        });
    for (size_t i = 0; i < first->outputs.size(); ++i)
      add([&](size_t block) -> const Value* { return node_of(graph, blocks, block, offset)->outputs[i]; });
  }
  return all;
}

}  // namespace tessera::rewrite
