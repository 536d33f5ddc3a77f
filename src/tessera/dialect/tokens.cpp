#include "tessera/dialect/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
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

// Every branch captures the token by its outer name and gives a token as its last result; a branch without
// communication gives the same one.
Value* thread_branches(Graph& graph, Node* node, Value* token, const Ordered& ordered, const std::string& name) {
  graph.set_input(node, node->inputs.size(), token);
  node->captures.push_back(token->name);
  int number = 0;
  for (Graph* branch : node->regions()) {
    Value* taken = branch->add_value(token->name, ValueKind::input, token->type);
    // A token has one reader, so names that begin with its name are used nowhere else.
    const std::string inside = fmt::format("{}.branch{}", token->name, number++);
    Value* last = thread(
        *branch, ordered, [&] { return taken; }, inside);
    if (!last) {
      last = branch->add_node("Identity", {taken}, {inside})->outputs[0];
      last->type = token->type;
    }
    branch->outputs.push_back(last);
  }
  Value* after = graph.add_value(name, ValueKind::result, {DType::int64, Shape{}});
  after->producer = node;
  node->outputs.push_back(after);
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
      token = thread_branches(graph, node, token, ordered, name);
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

void check_chain(const Graph& graph, const std::vector<Link>& links) {
  for (size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    if (i == 0 && link.before->producer && !is_constant(*link.before))
      fail("dialect", "{}: its token comes from {}, which does not communicate; start from an initializer or an input",
           link.node->label(), link.before->producer->label());
    if (i > 0 && link.before != links[i - 1].after) {
      auto other = std::find_if(links.begin(), links.end(),
                                [&](const Link& each) { return each.node != link.node && each.before == link.before; });
      fail("dialect",
           "{}: its token is not that of {}, which comes before it{}; a token has one reader, and each node "
           "takes that of the one before",
           link.node->label(), links[i - 1].node->label(),
           other == links.end() ? "" : fmt::format(", but one that {} takes too", other->node->label()));
    }
    if (link.before->uses.size() > 1 && !(i == 0 && is_constant(*link.before))) {
      const Node* other =
          link.before->uses[0].node == link.node ? link.before->uses[1].node : link.before->uses[0].node;
      fail("dialect", "{}: its token goes to {}, too; a token has one reader", link.node->label(), other->label());
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
    fail("write", "the model calls a tensor '{}', which stands for the order of communication; rename it", kLastToken);
  graph.outputs.push_back(last);
  return true;
}

void state_positions(OnnxModel& model) {
  const std::function<void(const Graph&)> state = [&](const Graph& graph) {
    for (const auto& node : graph.nodes()) {
      if (communicates(*node)) node->set(kOrderAttribute, std::string("position"));
      for (const Graph* branch : node->regions()) state(*branch);
    }
  };
  for (const Function& function : model.functions) state(*function.body);
  state(*model.graph);
}

void strip_tokens(Graph& graph) {
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
      fail("dialect", "{}: {} reads its token; only communication may", link.node->label(),
           link.after->uses[0].node->label());
  }
  for (const Link& link : links) discard(link.after);
}

}  // namespace tessera::dialect
