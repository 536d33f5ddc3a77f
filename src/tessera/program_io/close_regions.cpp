#include "tessera/program_io/close_regions.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"

namespace tessera::program_io {
namespace {

// A graph that a node will own, and its names for the values around it.
struct Body {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::map<const Value*, Value*> known;
};

class RegionCloser {
 public:
  explicit RegionCloser(Graph& graph) : graph_(graph) {}

  // The innermost construct first, so that outer ones contain it as a node.
  void run() {
    spell_out();
    for (flow_ = flow::flow_of(graph_); !flow_.empty(); flow_ = flow::flow_of(graph_)) {
      const auto deepest = std::max_element(flow_.regions.begin(), flow_.regions.end(),
                                            [](const auto& a, const auto& b) { return a.depth < b.depth; });
      const int region = static_cast<int>(deepest - flow_.regions.begin());
      if (deepest->is_loop())
        close_loop(region);
      else
        close_branches(region);
    }
    graph_.sort();
  }

 private:
  Value* add(std::string_view type, std::vector<Value*> operands, const TensorType& result, const std::string& name,
             const Node* before) {
    Value* made = graph_.add_node(type, std::move(operands), {name}, "", before)->outputs[0];
    made->type = result;
    return made;
  }

  // Uses ONNX's operators for what a Loop lacks: gathers rows, and reverses results of reversed scans.
  void spell_out() {
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes()) nodes.push_back(node.get());
    for (size_t n = 0; n < nodes.size(); ++n) {
      Node* node = nodes[n];
      const bool reverse = node->get_int("reverse", 0) != 0;
      if (flow::is(*node, "Item")) {
        Value* row = node->input(1);
        if (reverse)
          row = add("Sub", {graph_.constant_int64({-1}, true), row}, row->type, node->outputs[0]->name + ".row", node);
        Value* item = node->outputs[0];
        const std::string name = item->name;
        graph_.rename(item, name + ".item");
        Value* gathered = add("Gather", {node->input(0), row}, item->type, name, node);
        gathered->producer->set("axis", int64_t{0});
        gathered->extra = item->extra;
        graph_.replace_uses(item, gathered);
        graph_.erase(node);
      } else if (flow::is(*node, "Stack") && reverse) {
        node->remove_attribute("reverse");
        Value* stacked = node->outputs[0];
        const std::string name = stacked->name;
        graph_.rename(stacked, name + ".reversed");
        Value* turned = graph_.add_value(name, ValueKind::result, stacked->type);
        turned->extra = std::exchange(stacked->extra, "");
        graph_.replace_uses(stacked, turned);
        auto slice = std::make_unique<Node>();
        slice->op_type = "Slice";
        slice->inputs = {stacked, graph_.constant_int64({-1}),
                         graph_.constant_int64({std::numeric_limits<int64_t>::min()}), graph_.constant_int64({0}),
                         graph_.constant_int64({-1})};
        slice->outputs = {turned};
        graph_.adopt_node(std::move(slice), n + 1 < nodes.size() ? nodes[n + 1] : nullptr);
      }
    }
  }

  std::vector<Node*> nodes_in(int region) const {
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes())
      if (flow_.of(node.get()) == region) nodes.push_back(node.get());
    return nodes;
  }

  // A value in a body: one of its own, or an outer one by its inner name.
  static Value* inside(Body& body, Value* value, Node& holder) {
    if (!value) return nullptr;
    if (const auto found = body.known.find(value); found != body.known.end()) return found->second;
    if (std::find(holder.captures.begin(), holder.captures.end(), value->name) == holder.captures.end()) {
      holder.captures.push_back(value->name);
      holder.inputs.push_back(value);
    }
    return body.known[value] = body.graph->add_value(value->name, ValueKind::input, value->type);
  }

  static Value* take(Body& body, const Value* value, ValueKind kind) {
    Value* made = body.graph->add_value(value->name, kind, value->type);
    made->extra = value->extra;
    return body.known[value] = made;
  }

  static void copy(Body& body, const Node& node, Node& holder) {
    auto twin = std::make_unique<Node>(node);
    for (Value*& operand : twin->inputs) operand = inside(body, operand, holder);
    for (Value*& result : twin->outputs)
      if (result) result = take(body, result, ValueKind::result);
    body.graph->adopt_node(std::move(twin));
  }

  // A branch uses the outer value itself, with its name: graphs in the branch refer to the value by name, and so does
  // communication (or the functions that it has become), which names the value that it moves.
  static void bring(Body& body, const Node& node, Node& holder) {
    Value *outer = inside(body, node.input(0), holder), *inner = node.outputs[0];
    const bool needs_name = std::any_of(inner->uses.begin(), inner->uses.end(), [](const Use& use) {
      return use.index >= use.node->operand_count() || !use.node->domain.empty();
    });
    if (!needs_name) {
      body.known[inner] = outer;
      return;
    }
    Value* copied = body.graph->add_node("Identity", {outer}, {inner->name})->outputs[0];
    copied->type = inner->type;
    copied->extra = inner->extra;
    body.known[inner] = copied;
  }

  // Each output of a body must be a separate result of one of its nodes.
  void put_out(Body& body, Value* value, Node& holder, const std::string& name) {
    Value* given = inside(body, value, holder);
    if (!given->producer || body.graph->is_output(given)) {
      Value* copied = body.graph->add_node("Identity", {given}, {fresh(name)})->outputs[0];
      copied->type = given->type;
      given = copied;
    }
    body.graph->outputs.push_back(given);
  }

  // Names in a body must differ from all names around it.
  std::string fresh(const std::string& wanted) {
    std::string name = wanted;
    for (int n = 1; graph_.find(name) || !given_.insert(name).second; ++n) name = wanted + "_" + std::to_string(n);
    return name;
  }

  // Replaces a value that leaves the region by the owning node's result.
  void leave(Value* value, Node& holder) {
    if (!value) return holder.outputs.push_back(nullptr);
    const std::string name = value->name;
    graph_.rename(value, name + ".leaving");
    Value* outside = graph_.add_value(name, ValueKind::result, value->type);
    outside->extra = value->extra;
    graph_.replace_uses(value, outside);
    holder.outputs.push_back(outside);
  }

  void erase(std::vector<Node*> nodes) {
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) graph_.erase(*node);
  }

  void close_loop(int region) {
    const flow::FlowRegion& loop = flow_.regions[region];
    const Node &begin = *loop.begin, &end = *loop.end;
    std::vector<Node*> nodes = nodes_in(region);
    auto holder = std::make_unique<Node>();
    holder->op_type = "Loop";
    holder->name = begin.name;
    holder->inputs = {begin.input(0), begin.input(1)};
    Body body;
    body.graph->name = "body";
    const std::string prefix = begin.outputs[0]->name;
    body.graph->inputs.push_back(take(body, begin.outputs[0], ValueKind::input));
    Value* runs = body.graph->add_input(fresh(prefix + ".runs"), {DType::boolean, Shape{}});
    std::vector<const Value*> carried;
    for (const Node* node : nodes) {
      if (!flow::is(*node, "Carry")) continue;
      holder->inputs.push_back(node->input(0));
      carried.push_back(node->outputs[0]);
      body.graph->inputs.push_back(take(body, node->outputs[0], ValueKind::input));
    }
    for (const Node* node : nodes)
      if (node->domain != flow::kDomain) copy(body, *node, *holder);
    body.known[runs] = runs;
    put_out(body, end.input(1) ? end.input(1) : runs, *holder, prefix + ".again");
    std::vector<Node*> leaving;
    for (const Value* value : carried) {
      const Node *next = nullptr, *last = nullptr;
      for (const Use& use : value->uses) {
        if (flow::is(*use.node, "Next") && use.index == 2) next = use.node;
        if (flow::is(*use.node, "Last")) last = use.node;
      }
      check(next != nullptr, "a carried value has a next one");
      put_out(body, next->input(0), *holder, value->name + ".next");
      leave(last ? last->outputs[0] : nullptr, *holder);
      if (last) leaving.push_back(const_cast<Node*>(last));
    }
    for (const Node* node : nodes) {
      if (!flow::is(*node, "Stack")) continue;
      put_out(body, node->input(0), *holder, node->outputs[0]->name + ".row");
      leave(node->outputs[0], *holder);
    }
    holder->set("body", Region(std::move(body.graph)));
    graph_.adopt_node(std::move(holder), &end);
    nodes.insert(nodes.end(), leaving.begin(), leaving.end());
    erase(std::move(nodes));
  }

  void close_branches(int region) {
    const Value* token = flow_.regions[region].begin->outputs[0];
    Node* join = nullptr;
    for (const Use& use : token->uses)
      if (flow::is(*use.node, "Join")) join = use.node;
    check(join != nullptr, "branches join");
    auto holder = std::make_unique<Node>();
    holder->op_type = "If";
    holder->name = join->name;
    holder->inputs = {join->input(0)->producer->input(0)};
    std::vector<Node*> chosen, gone;
    for (const Use& use : join->outputs[0]->uses) chosen.push_back(use.node);
    std::vector<std::pair<std::string, Region>> branches;
    for (const size_t side : {0, 1}) {
      Body body;
      body.graph->name = side == 0 ? "then" : "else";
      const std::vector<Node*> nodes = nodes_in(flow_.of(join->input(side)->producer));
      for (const Node* node : nodes) {
        if (flow::is(*node, "Bring"))
          bring(body, *node, *holder);
        else if (node->domain != flow::kDomain)
          copy(body, *node, *holder);
      }
      for (const Node* choose : chosen)
        put_out(body, choose->input(side), *holder, choose->outputs[0]->name + "." + body.graph->name);
      branches.emplace_back(side == 0 ? "then_branch" : "else_branch", Region(std::move(body.graph)));
      gone.insert(gone.end(), nodes.begin(), nodes.end());
    }
    for (const Node* choose : chosen) leave(choose->outputs[0], *holder);
    for (auto& [name, branch] : branches) holder->set(name, std::move(branch));
    graph_.adopt_node(std::move(holder), join);
    gone.push_back(join);
    gone.insert(gone.end(), chosen.begin(), chosen.end());
    erase(std::move(gone));
  }

  Graph& graph_;
  flow::Flow flow_;
  std::set<std::string> given_;
};

}  // namespace

void close_regions(Graph& graph) {
  if (!flow::has_flow(graph)) return;
  flow::arrange_regions(graph);
  RegionCloser(graph).run();
}

}  // namespace tessera::program_io
