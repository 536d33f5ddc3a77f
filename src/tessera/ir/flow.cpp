#include "tessera/ir/flow.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"

namespace tessera::flow {
namespace {

const Node& maker_of(const Node& node, size_t operand, std::string_view type) {
  const Value* value = node.input(operand);
  if (!value || !value->producer || !is(*value->producer, type))
    fail("flow", "{}: its operand {} must be the result of a {} of the same construct", node.label(), operand, type);
  return *value->producer;
}

class FlowFinder {
 public:
  explicit FlowFinder(const Graph& graph) {
    for (const auto& node : graph.nodes()) visit(*node);
    for (const FlowRegion& region : flow_.regions)
      if (region.is_loop() && !region.end) fail("flow", "{}: the loop has no end (Again)", region.begin->label());
  }

  Flow take() { return std::move(flow_); }

 private:
  void visit(const Node& node) {
    if (node.domain == kDomain) require_parts(node);
    const int region = is(node, "Loop") || is(node, "Branch") ? begin(node) : region_of(node);
    if (region >= 0) flow_.region_of[&node] = region;
    if (is(node, "Again")) {
      FlowRegion& loop = flow_.regions[flow_.of(&maker_of(node, 0, "Loop"))];
      if (loop.end) fail("flow", "{}: the loop has two ends", node.label());
      loop.end = &node;
    }
  }

  // Each node of a construct has its operands from the nodes that ir/flow.h says.
  static void require_parts(const Node& node) {
    struct Part {
      std::string_view type;
      size_t operand;
      std::string_view from;
    };
    static constexpr Part kParts[] = {{"Carry", 1, "Loop"},  {"Item", 1, "Loop"},   {"Next", 1, "Loop"},
                                      {"Next", 2, "Carry"},  {"Again", 0, "Loop"},  {"Last", 0, "Carry"},
                                      {"Last", 1, "Again"},  {"Stack", 1, "Again"}, {"Bring", 1, "Branch"},
                                      {"Join", 0, "Branch"}, {"Join", 1, "Branch"}, {"Choose", 2, "Join"}};
    for (const Part& part : kParts)
      if (node.op_type == part.type) maker_of(node, part.operand, part.from);
    const bool is_branch = is(node, "Branch");
    const Value* around = node.input(is_branch ? 1 : 2);
    if ((is_branch || is(node, "Loop")) && around &&
        !(around->producer && (is(*around->producer, "Loop") || is(*around->producer, "Branch"))))
      fail("flow", "{}: '{}' is not an iteration or branch that can enclose it", node.label(), around->name);
    if (is_branch && !node.input(0)) fail("flow", "{}: it has no condition", node.label());
  }

  int begin(const Node& node) {
    const size_t around = is(node, "Loop") ? 2 : 1;
    FlowRegion region{.begin = &node};
    if (const Value* token = node.input(around)) region.parent = flow_.of(token->producer);
    region.depth = region.parent < 0 ? 0 : flow_.regions[region.parent].depth + 1;
    for (size_t i = 0; i < around; ++i)
      if (const Value* operand = node.input(i)) require_within(node, region.parent, leaves_to(operand));
    flow_.regions.push_back(region);
    return static_cast<int>(flow_.regions.size()) - 1;
  }

  // The region that a value is in: that of its maker, or around it if the maker lets it out.
  int leaves_to(const Value* value) const {
    const Node* maker = value->producer;
    if (!maker) return -1;
    const int region = flow_.of(maker);
    return is(*maker, "Stack") ? flow_.regions[region].parent : region;
  }

  int parent_of(const Node& begin) const { return flow_.regions[flow_.of(&begin)].parent; }

  int region_of(const Node& node) const {
    if (is(node, "Last")) return parent_of(maker_of(maker_of(node, 1, "Again"), 0, "Loop"));
    if (is(node, "Join")) return parent_of(maker_of(node, 0, "Branch"));
    if (is(node, "Choose")) return parent_of(maker_of(maker_of(node, 2, "Join"), 0, "Branch"));
    int deepest = -1;
    for (const Value* operand : node.inputs)
      if (operand)
        if (const int region = leaves_to(operand); depth(region) > depth(deepest)) deepest = region;
    for (const Value* operand : node.inputs)
      if (operand) require_within(node, deepest, leaves_to(operand));
    return deepest;
  }

  int depth(int region) const { return region < 0 ? -1 : flow_.regions[region].depth; }

  void require_within(const Node& node, int inner, int outer) const {
    if (!flow_.is_within(inner, outer))
      fail("flow", "{}: it uses values of two branches or bodies that do not enclose each other", node.label());
  }

  Flow flow_;
};

// Orders the nodes of one region, in which regions inside it are single items.
class RegionOrder {
 public:
  RegionOrder(const Graph& graph, const Flow& flow) : flow_(flow) {
    for (const auto& node : graph.nodes())
      index_.emplace(node.get(), static_cast<int>(nodes_.size())), nodes_.push_back(node.get());
  }

  std::vector<Node*> run() {
    std::map<int, std::vector<int>> nodes_in;  // by region: nodes, those of inner regions included
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
      for (int region = flow_.of(nodes_[n]);; region = flow_.regions[region].parent) {
        nodes_in[region].push_back(n);
        if (region < 0) break;
      }
    nodes_in_ = std::move(nodes_in);
    place(-1);
    return std::move(order_);
  }

 private:
  // The item of region `level` that a node is in: the node itself (its number), or ~r for a region r inside.
  int item_of(int node, int level) const {
    int region = flow_.of(nodes_[node]);
    if (region == level) return node;
    while (flow_.regions[region].parent != level) region = flow_.regions[region].parent;
    return ~region;
  }

  int rank_of(int item) const {
    if (item < 0) return index_.at(flow_.regions[~item].begin);
    if (is(*nodes_[item], "Carry")) return -1;
    return item;
  }

  void place(int level) {
    std::map<int, std::set<int>> before, after;  // by item
    for (int n : nodes_in_.at(level)) {
      const int item = item_of(n, level);
      before.try_emplace(item);
      for (const Value* operand : nodes_[n]->inputs) {
        if (!operand || !operand->producer) continue;
        const int maker = index_.at(operand->producer);
        if (!flow_.is_within(flow_.of(nodes_[maker]), level)) continue;
        const int other = item_of(maker, level);
        if (other == item) continue;
        before[item].insert(other);
        after[other].insert(item);
      }
    }
    std::set<std::pair<int, int>> ready;
    for (const auto& [item, others] : before)
      if (others.empty()) ready.emplace(rank_of(item), item);
    size_t placed = 0;
    while (!ready.empty()) {
      const int item = ready.extract(ready.begin()).value().second;
      ++placed;
      if (item < 0)
        place(~item);
      else
        order_.push_back(nodes_[item]);
      for (int other : after[item]) {
        before[other].erase(item);
        if (before[other].empty()) ready.emplace(rank_of(other), other);
      }
    }
    check(placed == before.size(), "regions of a graph depend on each other in one direction only");
  }

  const Flow& flow_;
  std::vector<Node*> nodes_;
  std::map<const Node*, int> index_;
  std::map<int, std::vector<int>> nodes_in_;
  std::vector<Node*> order_;
};

}  // namespace

int Flow::of(const Node* node) const {
  const auto found = region_of.find(node);
  return found == region_of.end() ? -1 : found->second;
}

Expr runs_of(const Flow& flow, const Node* node) {
  Expr runs = 1;
  for (int region = flow.of(node); region >= 0; region = flow.regions[region].parent) {
    const FlowRegion& around = flow.regions[region];
    const Value* trips = around.is_loop() ? around.begin->input(0) : nullptr;
    if (trips && trips->content && trips->content->size() == 1) runs = runs * trips->content->front();
  }
  return runs;
}

bool Flow::is_within(int inner, int outer) const {
  while (inner != outer && inner >= 0) inner = regions[inner].parent;
  return inner == outer;
}

Flow flow_of(const Graph& graph) {
  return has_flow(graph) ? FlowFinder(graph).take() : Flow{};
}

bool has_flow(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return node->domain == kDomain; });
}

void arrange_regions(Graph& graph) {
  if (!has_flow(graph)) return;
  const Flow flow = flow_of(graph);
  graph.arrange(RegionOrder(graph, flow).run());
}

}  // namespace tessera::flow
