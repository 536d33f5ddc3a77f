#include "tessera/passes/forward.h"

#include <algorithm>
#include <map>

#include "tessera/ir/transplant.h"

namespace tessera::passes {
namespace {

using spmd::Program;

bool any_in(const Node& node, const std::set<const Value*>& values) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](const Value* operand) { return operand && values.contains(operand); });
}

}  // namespace

Forward::Forward(const Program& program, const LiveBytes& live) {
  const Graph& graph = *program.graph;
  if (graph.outputs.empty()) return;
  nodes_ = makers_of(graph, {graph.outputs.front()});
  for (const auto& node : graph.nodes())
    if (node->is("Send", spmd::kCommDomain) && node->input(0) && contains(node->inputs[0]->producer))
      nodes_.insert(node.get());
  find_dependences(graph);
  find_segments(program, live);
}

void Forward::find_dependences(const Graph& graph) {
  of_inputs_.insert(graph.inputs.begin(), graph.inputs.end());
  for (const Value* state : graph.values_of(ValueKind::state)) of_states_.insert(state);
  // A value's received messages depend on its sent ones.
  for (auto* values : {&of_inputs_, &of_states_}) {
    std::set<std::string> sent;
    for (const auto& node : graph.nodes()) {
      const bool depends = any_in(*node, *values);
      if (depends && node->is("Send", spmd::kCommDomain)) sent.insert(node->get_string("value", ""));
      if (depends || (node->is("Recv", spmd::kCommDomain) && sent.contains(node->get_string("value", ""))))
        for (const Value* result : node->outputs)
          if (result) values->insert(result);
    }
  }
}

std::map<const Value*, double> Forward::lasting_bytes(const Program& program, const LiveBytes& live) const {
  std::map<const Value*, double> bytes;
  std::map<const Value*, int> readers;
  std::vector<std::pair<const Value*, const Value*>> exchanges;  // homes of an operand and of what is made of it alone
  for (const auto& node : program.graph->nodes()) {
    if (!contains(node.get())) continue;
    for (const Value* home : live.made_by(*node)) bytes[home] = live.of(home);
    for (const Value* home : live.read_by(*node)) ++readers[home];
    if ((node->domain != spmd::kCommDomain && !node->is("Cast")) || node->outputs.size() != 1 || !node->input(0))
      continue;
    const Value *from = live.home(node->input(0)), *made = live.home(node->output());
    if (!from || !made || from == made) continue;
    exchanges.emplace_back(from, made);
    bytes[made] = std::min(bytes[made], bytes[from]);
  }
  for (auto each = exchanges.rbegin(); each != exchanges.rend(); ++each)
    if (readers[each->first] == 1) bytes[each->first] = std::min(bytes[each->first], bytes[each->second]);
  return bytes;
}

void Forward::find_segments(const Program& program, const LiveBytes& live) {
  const std::map<const Value*, double> lasting = lasting_bytes(program, live);
  // Uses by the forward pass alone, of homes with more than one element, so that losses of earlier micro-batches do not
  // count.
  std::map<const Value*, int> uses;
  const auto counts = [&](const Value* home) {
    return is_activation(home) && spmd::hinted(product(home->shape()), program.hints) > 1;
  };
  for (const auto& node : program.graph->nodes())
    if (contains(node.get()))
      for (const Value* home : live.read_by(*node))
        if (counts(home)) ++uses[home];

  std::set<const Value*> alive;
  double bytes = 0, most = 0;  // now; the most since the last point that was chosen
  // The point with the fewest bytes since then: a segment may end there, if more than twice as many come before and
  // after it.
  struct Point {
    size_t nodes = 0;
    double bytes = 0;
    std::set<const Value*> alive;
  };
  std::optional<Point> least;
  Segment segment;
  const auto end_at = [&](const Point& point, bool last) {
    Segment ended;
    ended.nodes.assign(segment.nodes.begin(), segment.nodes.begin() + static_cast<ptrdiff_t>(point.nodes));
    ended.last = last;
    segment.nodes.erase(segment.nodes.begin(), segment.nodes.begin() + static_cast<ptrdiff_t>(point.nodes));
    if (!ended.nodes.empty()) segments_.push_back(std::move(ended));
    between_.insert(point.alive.begin(), point.alive.end());
    least.reset();
    most = bytes;
  };
  // Consecutive nodes of the forward pass, and other nodes since the last of them. Other nodes form a backward pass (of
  // a micro-batch) if they are more than half as many as the forward nodes before them; training steps of other tools
  // have single other nodes in between.
  size_t run = 0, others = 0;
  for (const auto& node : program.graph->nodes()) {
    if (!contains(node.get())) {
      ++others;
      continue;
    }
    if (others > run / 2 && !segment.nodes.empty()) {
      end_at({segment.nodes.size(), bytes, alive}, true);
      run = 0;
    }
    others = 0;
    ++run;
    if (least && bytes > 2 * least->bytes) end_at(*least, false);
    segment.nodes.push_back(node.get());
    for (const Value* home : live.made_by(*node))
      if (uses.contains(home) && alive.insert(home).second) bytes += lasting.at(home);
    most = std::max(most, bytes);
    for (const Value* home : live.read_by(*node))
      if (uses.contains(home) && --uses.at(home) == 0 && alive.erase(home)) bytes -= lasting.at(home);
    if (bytes > 0 && most > 2 * bytes && (!least || bytes <= least->bytes))
      least = Point{segment.nodes.size(), bytes, alive};
  }
  if (!segment.nodes.empty()) end_at({segment.nodes.size(), bytes, alive}, true);
}

}  // namespace tessera::passes
