#include "tessera/dialect/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/flow.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

using Ordered = std::function<bool(const Node&)>;

constexpr int64_t kFirstElement = 0x746f6b656e;  // "token"

bool holds_ordered(const Node& node, const Ordered& ordered) {
  for (const Graph* branch : node.regions())
    for (const auto& inner : branch->nodes())
      if (ordered(*inner) || holds_ordered(*inner, ordered)) return true;
  return false;
}

Value* thread(Graph& graph, const Ordered& ordered, const std::function<Value*()>& first, const std::string& name);

// The token's way through a graph inside a node; a graph without communication gives the token that it takes.
Value* thread_inside(Graph& graph, Value* taken, const Ordered& ordered, const std::string& name) {
  Value* last = thread(
      graph, ordered, [&] { return taken; }, name);
  if (last) return last;
  last = graph.add_node("Identity", {taken}, {name})->outputs[0];
  last->type = taken->type;
  return last;
}

void insert_input(Graph& graph, Node* node, size_t at, Value* value) {
  const std::vector<Value*> later(node->inputs.begin() + static_cast<long>(at), node->inputs.end());
  graph.set_input(node, at, value);
  for (size_t i = 0; i < later.size(); ++i) graph.set_input(node, at + 1 + i, later[i]);
}

// Every branch captures the token by its outer name and gives a token as its last result.
void thread_branches(Graph& graph, Node* node, Value* token, const Ordered& ordered) {
  graph.set_input(node, node->inputs.size(), token);
  node->captures.push_back(token->name);
  int number = 0;
  for (Graph* branch : node->regions()) {
    Value* taken = branch->add_value(token->name, ValueKind::input, token->type);
    // A token has one reader, so names that begin with its name are used nowhere else.
    branch->outputs.push_back(
        thread_inside(*branch, taken, ordered, fmt::format("{}.branch{}", token->name, number++)));
  }
}

// A loop carries the token, as its last carried value.
void thread_body(Graph& graph, Node* node, Value* token, const Ordered& ordered) {
  Graph& body = *node->regions().front();
  insert_input(graph, node, node->operand_count(), token);
  Value* taken = body.add_input(token->name + ".body", token->type);
  const size_t carried = body.inputs.size() - 2;  // with the token
  body.outputs.insert(body.outputs.begin() + static_cast<long>(carried),
                      thread_inside(body, taken, ordered, token->name + ".next"));
}

Value* thread_region(Graph& graph, Node* node, Value* token, const Ordered& ordered, const std::string& name) {
  size_t result = node->outputs.size();
  if (node->is("Loop")) {
    thread_body(graph, node, token, ordered);
    result = node->regions().front()->inputs.size() - 3;
  } else {
    if (node->is("If") && !token->producer) {  // each branch is to have it as a value of the run
      token = graph.add_node("Identity", {token}, {name}, "", node)->outputs[0];
      token->type = {DType::int64, Shape{}};
    }
    thread_branches(graph, node, token, ordered);
  }
  Value* after = graph.add_value(name, ValueKind::result, {DType::int64, Shape{}});
  after->producer = node;
  node->outputs.insert(node->outputs.begin() + static_cast<long>(result), after);
  return after;
}

// Returns the last token; null if nothing is ordered. Tokens get fresh names from `name`.
Value* thread(Graph& graph, const Ordered& ordered, const std::function<Value*()>& first, const std::string& name) {
  Value* token = nullptr;
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes())
    if (ordered(*node) || holds_ordered(*node, ordered)) nodes.push_back(node.get());
  for (Node* node : nodes) {
    if (!token) token = first();
    if (!ordered(*node)) {
      token = thread_region(graph, node, token, ordered, name);
      continue;
    }
    graph.set_input(node, node->inputs.size(), token);
    token = graph.add_value(name, ValueKind::result, {DType::int64, Shape{}});
    token->producer = node;
    node->outputs.push_back(token);
  }
  return token;
}

bool is_call(const Node& node, const std::set<std::string>& functions) {
  return node.domain == spmd::kCommDomain && functions.contains(node.op_type);
}

// A value that nobody makes or reads any more, for erase_dead to remove.
void discard(Value* value) {
  value->producer = nullptr;
  value->kind = ValueKind::expression;
  value->type = {DType::int64, Shape{}};
  value->content = {Expr(0)};
}

struct Link {
  Node* node;
  Value *before, *after;
};

// Whether the value is a constant. Such a token may have other readers, since a tool may have merged equal constants.
bool is_constant(const Value& value) {
  return value.producer ? value.producer->is("Constant") : value.kind == ValueKind::constant;
}

// Whether the value is an initializer or an input, or a copy of one, as an If's branches need it.
bool is_first(const Value& value) {
  if (value.producer && value.producer->is("Identity") && value.producer->input(0))
    return is_first(*value.producer->input(0));
  return !value.producer || is_constant(value);
}

void check_chain(const Graph& graph, const std::vector<Link>& links) {
  for (size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    if (i == 0 && !is_first(*link.before))
      fail("dialect", "{}: its token comes from {}, which does not communicate; start from an initializer or an input",
           link.node->label(), link.before->producer->label());
    if (i > 0 && link.before != links[i - 1].after) {
      auto other = std::find_if(links.begin(), links.end(),
                                [&](const Link& each) { return each.node != link.node && each.before == link.before; });
      fail("dialect",
           "{}: its token is not that of {}, which precedes it{}; a token has one reader, and each node takes the "
           "token of the node before",
           link.node->label(), links[i - 1].node->label(),
           other == links.end() ? "" : fmt::format(", but one that {} takes too", other->node->label()));
    }
    if (link.before->uses.size() > 1 && !(i == 0 && is_constant(*link.before))) {
      const Node* other =
          link.before->uses[0].node == link.node ? link.before->uses[1].node : link.before->uses[0].node;
      fail("dialect", "{}: its token is also read by {}; a token has one reader", link.node->label(), other->label());
    }
    if (i + 1 < links.size() && graph.is_output(link.after))
      fail("dialect", "{}: its token is an output, but {} comes after it; the last token is the output",
           link.node->label(), links[i + 1].node->label());
  }
}

}  // namespace

bool thread_tokens(OnnxModel& model) {
  std::set<std::string> threaded;
  Ordered ordered = [&](const Node& node) { return communicates(node) || is_call(node, threaded); };
  for (Function& function : model.functions) {  // what one calls stands before it
    Graph& body = *function.body;
    Value* last = thread(
        body, ordered, [&] { return body.add_input("token", {}); }, "token");
    if (!last) continue;
    body.outputs.push_back(last);
    if (function.domain == spmd::kCommDomain) threaded.insert(function.name);
  }
  Graph& graph = *model.graph;
  Value* last = thread(
      graph, ordered,
      [&] { return graph.add_constant(kFirstToken, Tensor::of<int64_t>(DType::int64, {}, {kFirstElement})); }, "token");
  if (!last) return false;
  graph.rename(last, kLastToken);
  if (last->name != kLastToken)
    fail("write", "the model has a tensor '{}', a name that is reserved for the order of communication; rename it",
         kLastToken);
  graph.outputs.push_back(last);
  return true;
}

void state_positions(OnnxModel& model) {
  const std::function<void(const Graph&)> state = [&](const Graph& graph) {
    for (const auto& node : graph.nodes()) {
      if (communicates(*node)) node->set(spmd::kOrderAttribute, std::string("position"));
      for (const Graph* branch : node->regions()) state(*branch);
    }
  };
  for (const Function& function : model.functions) state(*function.body);
  state(*model.graph);
}

namespace {

// Where tokens pass branches and loops that have been opened (ir/flow.h), each communication takes the token of the one
// before it in the file: the second branch goes on from the first, and a body from what comes before the loop.
class FlowOfTokens {
 public:
  explicit FlowOfTokens(Graph& graph) : graph_(graph) {}

  void straighten() {
    if (!flow::has_flow(graph_)) return;
    find_tokens();
    for (Value*& output : graph_.outputs)
      if (tokens_.contains(output)) output = before(output);
    for (const auto& node : graph_.nodes())
      if (communicates(*node)) {
        const size_t operands = find_schema(node->op_type)->operands.size();
        if (Value* token = node->input(operands)) graph_.set_input(node.get(), operands, before(token));
      }
    drop_carried();
    graph_.erase_dead();
  }

 private:
  static const Node* reader(const Value* value, std::string_view type, size_t index) {
    for (const Use& use : value->uses)
      if (flow::is(*use.node, type) && use.index == index) return use.node;
    return nullptr;
  }

  // The token that a communication gives, or the first one, in place of a token that a branch or loop hands on.
  Value* before(Value* value) {
    Value* at = value;
    while (const Node* maker = at->producer) {
      const Node* source = maker;
      size_t operand = 0;
      if (flow::is(*maker, "Last")) {
        source = reader(maker->input(0), "Next", 2);
      } else if (flow::is(*maker, "Choose")) {
        operand = 1;
      } else if (flow::is(*maker, "Bring") && maker->input(1)->producer->get_int("taken", 1) == 0) {
        source = chooser_beside(*maker);
      } else if (!flow::is(*maker, "Bring") && !flow::is(*maker, "Carry") && !maker->is("Identity")) {
        return at;
      }
      if (!source || !source->input(operand)) return value;
      at = source->input(operand);
    }
    return at;
  }

  // All values that stand for a token: those of communications, and what hands them on.
  void find_tokens() {
    std::vector<const Value*> found;
    const auto add = [&](const Value* value) {
      if (value && tokens_.insert(value).second) found.push_back(value);
    };
    for (const auto& node : graph_.nodes()) {
      if (!communicates(*node)) continue;
      const Schema& schema = *find_schema(node->op_type);
      add(node->input(schema.operands.size()));
      add(node->output(schema.results.size()));
    }
    while (!found.empty()) {
      const Value* token = found.back();
      found.pop_back();
      if (!token->producer) continue;  // the first one, which a tool may have merged with other constants
      hand_on(*token->producer, add);
      for (const Use& use : token->uses)
        if (!flow::is(*use.node, "Next") || use.index != 1) hand_on(*use.node, add);
    }
  }

  template <typename Add>
  static void hand_on(const Node& node, const Add& add) {
    const bool carries = flow::is(node, "Carry") || flow::is(node, "Last") || flow::is(node, "Bring");
    if (carries || node.is("Identity") || flow::is(node, "Choose")) {
      add(node.input(0));
      add(node.output(0));
    }
    if (flow::is(node, "Choose")) add(node.input(1));
    if (flow::is(node, "Next")) {
      add(node.input(0));
      add(node.input(2));
    }
  }

  // The Choose whose first branch goes on to the token that this Bring hands to the second.
  const Node* chooser_beside(const Node& bring) const {
    const Node* join = reader(bring.input(1), "Join", 1);
    if (!join) return nullptr;
    for (const Use& use : join->outputs[0]->uses)
      if (flow::is(*use.node, "Choose") && tokens_.contains(use.node->output())) return use.node;
    return nullptr;
  }

  // Carried tokens have no readers any more but the end of the iteration.
  void drop_carried() {
    for (const Value* token : tokens_) {
      const Node* carry = token->producer;
      if (!carry || !flow::is(*carry, "Carry")) continue;
      const Node* next = reader(carry->outputs[0], "Next", 2);
      if (!next || next->outputs.size() < 2) continue;
      for (const Use& use : std::vector<Use>(next->outputs[1]->uses)) {
        graph_.set_input(use.node, use.index, use.node->inputs.back());
        graph_.set_input(use.node, use.node->inputs.size() - 1, nullptr);
        use.node->inputs.pop_back();
      }
    }
  }

  Graph& graph_;
  std::set<const Value*> tokens_;
};

}  // namespace

void strip_tokens(Graph& graph) {
  FlowOfTokens(graph).straighten();
  std::vector<Link> links;
  const Node* without = nullptr;
  for (const auto& node : graph.nodes()) {
    if (!communicates(*node)) continue;
    const Schema& schema = *find_schema(node->op_type);
    Value *before = node->input(schema.operands.size()), *after = node->output(schema.results.size());
    if ((before == nullptr) != (after == nullptr))
      fail("dialect", "{}: it has a token as {} only; give it both, or none", node->label(),
           before ? "operand" : "result");
    if (before)
      links.push_back({node.get(), before, after});
    else
      without = node.get();
  }
  if (links.empty()) return;
  if (without)
    fail("dialect", "{} has no token, but {} has one; thread tokens through all communication, or none",
         without->label(), links[0].node->label());
  check_chain(graph, links);
  std::erase(graph.outputs, links.back().after);
  for (const Link& link : links) {
    const Schema& schema = *find_schema(link.node->op_type);
    graph.set_input(link.node, schema.operands.size(), nullptr);
    link.node->inputs.resize(schema.operands.size());
    link.node->outputs.resize(schema.results.size());
    if (!link.after->uses.empty() && !communicates(*link.after->uses[0].node))
      fail("dialect", "{}: {} reads its token but does not communicate; only communicating nodes may read tokens",
           link.node->label(), link.after->uses[0].node->label());
  }
  for (const Link& link : links) discard(link.after);
}

}  // namespace tessera::dialect
