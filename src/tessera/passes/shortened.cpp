#include "tessera/passes/shortened.h"

#include <algorithm>
#include <map>
#include <vector>

#include "tessera/ir/always_equal.h"
#include "tessera/ir/hash.h"
#include "tessera/spmd/partition/init.h"

namespace tessera::passes {
namespace {

// Blocks that stay: with one, nothing could be hidden behind a neighbour.
constexpr size_t kKept = 2;
// Fewer nodes are not worth the search.
constexpr size_t kLeastNodes = 16;

// Nodes from `first` on, `period` by `period`.
struct Run {
  size_t first = 0, period = 0, repeats = 0;
  size_t dropped() const { return repeats > kKept ? (repeats - kKept) * period : 0; }
};

uint64_t likeness(const Node& node) {
  Hash hash;
  hash.add(node.op_type);
  hash.add(node.domain);
  if (const auto* axes = node.get<std::vector<std::string>>("axes"))
    for (const std::string& axis : *axes) hash.add(axis);
  for (const auto* values : {&node.inputs, &node.outputs})
    for (const Value* value : *values) {
      hash.add(value ? name_of(value->dtype()) : "");
      if (value && value->has_shape())
        for (const Expr& extent : value->shape()) hash.add(fingerprint(extent));
      hash.add("");
    }
  return hash.value();
}

// The one that drops the most nodes; of several, the one with the shortest period.
Run longest_run(const std::vector<uint64_t>& nodes) {
  Run best;
  for (size_t period = 1;
       period * (kKept + 1) <= nodes.size() && nodes.size() - period * kKept > static_cast<size_t>(best.dropped());
       ++period) {
    size_t equal = 0;  // nodes up to here, each like the one a period before it
    for (size_t i = period; i <= nodes.size(); ++i) {
      if (i < nodes.size() && nodes[i] == nodes[i - period]) {
        ++equal;
        continue;
      }
      const Run found{i - equal - period, period, equal / period + 1};
      if (found.dropped() > best.dropped()) best = found;
      equal = 0;
    }
  }
  return best;
}

class Shortening {
 public:
  explicit Shortening(spmd::Program& program) : program_(program), graph_(*program.graph) {}

  void run() {
    for (;;) {
      std::vector<uint64_t> nodes;
      for (const auto& node : graph_.nodes()) nodes.push_back(likeness(*node));
      const Run run = longest_run(nodes);
      if (run.dropped() < kLeastNodes) return;
      drop(run);
      spmd::erase_dead(program_, true);
      if (graph_.nodes().size() == nodes.size()) return;
    }
  }

 private:
  void drop(const Run& run) {
    for (size_t block = kKept; block < run.repeats; ++block)
      for (size_t n = 0; n < run.period; ++n) {
        const size_t kept = block % kKept * run.period + n;
        replace(*graph_.nodes()[run.first + block * run.period + n], *graph_.nodes()[run.first + kept]);
      }
  }

  void replace(const Node& gone, const Node& kept) {
    for (size_t r = 0; r < gone.outputs.size(); ++r)
      if (gone.outputs[r]) replace(gone.outputs[r], kept.outputs[r]);
    for (size_t i = 0; i < gone.inputs.size(); ++i) {
      Value *state = gone.inputs[i], *other = kept.inputs[i];
      if (!state || state == other || state->kind != ValueKind::state || other->kind != ValueKind::state) continue;
      graph_.set_next(state, nullptr);
      replace(state, other);
    }
  }

  void replace(Value* gone, Value* kept) {
    graph_.replace_uses(gone, kept);
    for (spmd::Port& port : program_.outputs)
      if (port.value == gone) port.value = kept;
  }

  spmd::Program& program_;
  Graph& graph_;
};

}  // namespace

spmd::Program shortened(const spmd::Program& program) {
  spmd::Program made = spmd::in_one_graph(program);
  Shortening(made).run();
  return made;
}

}  // namespace tessera::passes
