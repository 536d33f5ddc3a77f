#include "tessera/generate/windowed_caches.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/generate/later_keys.h"
#include "tessera/generate/token_meetings.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/raise/affine.h"

//   present = Slice(Concat(Slice(past, -k:), key), -k:)          becomes   present = Concat(past, key)
//   y = Attention(query, Concat(…), …, mask)                               the same
// if the mask hides all keys j ≤ q - k - 1 of a query q, those of which the cache keeps none. A mask compares places of
// keys with those of queries, and does not change if both are counted from an earlier token on.
namespace tessera::generate {
namespace {

/// How many tokens the Slice keeps, if it takes the last ones along the third dimension of four.
std::optional<int64_t> last_tokens(const Node& slice) {
  const auto start = rewrite::numbers(slice.input(1)), end = rewrite::numbers(slice.input(2)),
             axes = rewrite::numbers(slice.input(3)),
             steps = slice.input(4) ? rewrite::numbers(slice.input(4)) : std::vector<int64_t>{1};
  if (slice.inputs[0]->rank() != 4 || !start || !end || !axes || !steps) return std::nullopt;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (start->size() != 1 || start->front() >= 0 || start->front() < -kMost || end->size() != 1 ||
      end->front() < std::numeric_limits<int32_t>::max() ||
      (*axes != std::vector<int64_t>{2} && *axes != std::vector<int64_t>{-2}) || *steps != std::vector<int64_t>{1})
    return std::nullopt;
  return -start->front();
}

class WindowOpener {
 public:
  WindowOpener(Graph& graph, const std::string& past) : graph_(graph), past_(past) {}

  void open(const DecoderPorts& ports) {
    bool any = false;
    for (const DecoderPorts::Cache& cache : ports.caches) any |= is_window(cache);
    if (!any) return;
    require_masks_only();
    const rewrite::AffineAnalysis analysis(graph_);
    const LaterKeys keys(analysis, Expr::symbol(past_));
    for (const DecoderPorts::Cache& cache : ports.caches)
      if (is_window(cache)) open(cache, keys);
    graph_.erase_dead();
    ops::infer_types(graph_);
  }

 private:
  bool is_window(const DecoderPorts::Cache& cache) const {
    const Node* slice = rewrite::made_by(graph_.find(cache.present), "Slice");
    const Node* join = slice ? rewrite::made_by(slice->inputs[0], "Concat") : nullptr;
    return join && join->inputs.size() == 2 && last_tokens(*slice);
  }

  void open(const DecoderPorts::Cache& cache, const LaterKeys& keys) {
    Value* present = graph_.find(cache.present);
    Node* join = present->producer->inputs[0]->producer;
    int64_t kept = *last_tokens(*present->producer);
    if (Node* again = rewrite::made_by(join->inputs[0], "Slice"))
      if (const auto fewer = last_tokens(*again); fewer && again->inputs[0] == graph_.find(cache.past)) {
        kept = std::min(kept, *fewer);
        graph_.set_input(join, 0, again->inputs[0]);
      }
    require_hidden(join->outputs[0], cache, kept, keys);
    if (!rewrite::replace(graph_, present, join->outputs[0]))
      fail("generate", "the output '{}' has two names", cache.present);
  }

  /// Whatever reads these keys or values has a mask that hides what the cache drops.
  void require_hidden(const Value* keys_or_values, const DecoderPorts::Cache& cache, int64_t kept,
                      const LaterKeys& keys) const {
    for (const Use& use : keys_or_values->uses) {
      const Node& node = *use.node;
      if (const Value* present = graph_.find(cache.present); present->producer == &node) {
        if (!present->uses.empty())
          fail("generate", "{} reads '{}', which would have all tokens", present->uses.front().node->label(),
               cache.present);
        continue;
      }
      const bool moves = node.is("Reshape") || node.is("Expand") || node.is("Unsqueeze") || node.is("Transpose");
      if (moves && use.index == 0) {
        require_hidden(node.outputs[0], cache, kept, keys);
        continue;
      }
      if (!node.is("Attention") || !node.input(ops::kMask) || !keys.hides_before(node.input(ops::kMask), kept))
        fail("generate", "the cache '{}' keeps {}, and {} may see others", cache.past, counted(kept, "token"),
             node.label());
    }
  }

  /// The number of tokens that caches have may only decide what masks hide.
  void require_masks_only() const {
    std::set<const Node*> seen;
    std::vector<const Node*> next;
    for (const auto& value : graph_.values()) {
      if (value->kind != ValueKind::expression || !value->content) continue;
      for (const Expr& element : *value->content)
        if (mentions(element, past_))
          for (const Use& use : value->uses)
            if (!use.node->is("Reshape") && !use.node->is("Expand") && !use.node->is("ConstantOfShape"))
              next.push_back(use.node);
    }
    while (!next.empty()) {
      const Node* node = next.back();
      next.pop_back();
      if (!seen.insert(node).second) continue;
      const bool goes_on =
          node->is("Range") || node->is("Reshape") || node->is("Expand") || rewrite::is_elementwise(*node);
      if (!goes_on)
        fail("generate",
             "{} computes with the number of tokens that caches keep, which is not that of all earlier ones",
             node->label());
      for (const Use& use : node->outputs[0]->uses)
        if (!use.node->is("Attention") || use.index != ops::kMask) next.push_back(use.node);
    }
  }

  Graph& graph_;
  const std::string& past_;
};

}  // namespace

void keep_all_tokens(Graph& graph, const DecoderPorts& ports, const std::string& past) {
  WindowOpener(graph, past).open(ports);
}

}  // namespace tessera::generate
