#include "tessera/stages/roles.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/error.h"

namespace tessera::stages {
namespace {

using Marks = std::vector<bool>;

// Marks the nodes that a value is computed from, beside those that are marked.
void mark_makers(const OneBatch& batch, const Value* value, Marks& marks) {
  std::vector<int> waiting;
  const auto reach = [&](int node) {
    if (node < 0 || marks[static_cast<size_t>(node)]) return;
    marks[static_cast<size_t>(node)] = true;
    waiting.push_back(node);
  };
  reach(batch.maker(value));
  while (!waiting.empty()) {
    const int node = waiting.back();
    waiting.pop_back();
    for (const OneBatch::Operand& operand : batch.operands(node)) reach(operand.made_by);
  }
}

bool is_large_state(const Value* value) {
  return value->kind == ValueKind::state && value->data.count() > 1;
}

// An output as a loss.
struct Candidate {
  Marks makers;
  int64_t nodes = 0;
  size_t states = 0;        // large ones that it depends on
  bool reads_next = false;  // it depends on a large state's next value, as a norm of new parameters does
};

Candidate candidate_of(const OneBatch& batch, const Value* output, const std::set<const Value*>& next) {
  Candidate candidate{Marks(static_cast<size_t>(batch.size()))};
  mark_makers(batch, output, candidate.makers);
  std::set<const Value*> states;
  for (int i = 0; i < batch.size(); ++i) {
    if (!candidate.makers[static_cast<size_t>(i)]) continue;
    ++candidate.nodes;
    for (const OneBatch::Operand& operand : batch.operands(i))
      if (is_large_state(operand.value)) states.insert(operand.value);
    for (const Value* result : batch.node(i).outputs) candidate.reads_next |= next.contains(result);
  }
  candidate.states = states.size();
  return candidate;
}

// Which nodes the forward pass has.
Marks forward_of(const Graph& graph, const OneBatch& batch) {
  std::set<const Value*> next;
  Marks makers_of_next(static_cast<size_t>(batch.size()));
  for (const auto& value : graph.values()) {
    if (!value->next) continue;
    if (is_large_state(value.get())) next.insert(batch.first(value->next));
    mark_makers(batch, value->next, makers_of_next);
  }
  std::vector<Candidate> candidates;
  for (const Value* output : graph.outputs)
    if (output->next_of == 0 && output->producer) candidates.push_back(candidate_of(batch, output, next));
  if (candidates.empty())
    fail("pipeline",
         "all outputs are next values of states, so nothing tells the forward pass from the backward pass; make the "
         "loss an output");
  // Fewer is better.
  const auto key = [](const Candidate& c) {
    return std::tuple(c.reads_next, -static_cast<int64_t>(c.states), c.nodes);
  };
  const Candidate& loss = *std::min_element(candidates.begin(), candidates.end(),
                                            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  Marks forward = loss.makers;
  for (const Candidate& candidate : candidates) {
    bool shares = candidate.states == 0;  // a learning rate, the scale of the loss
    for (size_t i = 0; i < forward.size(); ++i)
      shares = shares || (candidate.makers[i] && !loss.makers[i] && makers_of_next[i]);
    if (shares) continue;
    for (size_t i = 0; i < forward.size(); ++i)
      if (candidate.makers[i]) forward[i] = true;
  }
  return forward;
}

// What a node of the forward pass depends on.
struct Origin {
  bool parameters = false, inputs = false;
  double elements = 0;  // of states that do not train, if there are no parameters
  double seconds = 0;   // of its costliest path of counted operators
};

class Roling {
 public:
  Roling(const Graph& graph, const OneBatch& batch, const Measure& measure, Marks forward)
      : batch_(batch), measure_(measure), forward_(std::move(forward)), origins_(forward_.size()) {
    double elements = 0;
    for (const Value* state : graph.values_of(ValueKind::state))
      if (!state->uses.empty()) elements += static_cast<double>(state->data.count());
    constexpr double kMostElements = 4096, kElementShare = 0.01, kTimeShare = 0.005;
    few_elements_ = std::min(kMostElements, kElementShare * elements);
    for (int i = 0; i < batch.size(); ++i)
      if (forward_[static_cast<size_t>(i)]) short_time_ += kTimeShare * measure.seconds(batch.node(i));
  }

  Roles run() {
    Roles roles;
    roles.of.assign(origins_.size(), Role::other);
    bool any_chain = false;
    for (size_t i = 0; i < origins_.size(); ++i) {
      if (!forward_[i]) continue;
      const Origin& origin = origins_[i] = origin_of(static_cast<int>(i));
      roles.of[i] = !origin.parameters ? Role::free : origin.inputs ? Role::chain : Role::weights;
      any_chain = any_chain || roles.of[i] == Role::chain;
    }
    if (!any_chain) std::replace(roles.of.begin(), roles.of.end(), Role::weights, Role::chain);
    return roles;
  }

 private:
  // A parameter is a state that trains, or one that is not small: a table of frequencies is as good as a constant.
  void add_source(const Value& value, Origin& origin) const {
    if (value.kind == ValueKind::input) origin.inputs = true;
    if (value.kind != ValueKind::state) return;
    const bool counter = value.data.count() <= 1 && !is_float(value.dtype());
    if (value.changing && !counter) origin.parameters = true;
    origin.elements += static_cast<double>(value.data.count());
  }

  Origin origin_of(int node) const {
    Origin origin;
    for (const auto& [value, made_by] : batch_.operands(node)) {
      if (made_by < 0) {
        add_source(*value, origin);
        continue;
      }
      const Origin& of = origins_[static_cast<size_t>(made_by)];
      origin.parameters = origin.parameters || of.parameters;
      origin.inputs = origin.inputs || of.inputs;
      origin.elements += of.elements;
      origin.seconds = std::max(origin.seconds, of.seconds);
    }
    if (is_counted(batch_.node(node))) origin.seconds += measure_.seconds(batch_.node(node));
    if (origin.elements > few_elements_ || origin.seconds > short_time_) origin.parameters = true;
    return origin;
  }

  const OneBatch& batch_;
  const Measure& measure_;
  const Marks forward_;
  std::vector<Origin> origins_;
  double few_elements_ = 0, short_time_ = 0;
};

}  // namespace

Roles roles_of(const Graph& graph, const OneBatch& batch, const Measure& measure) {
  return Roling(graph, batch, measure, forward_of(graph, batch)).run();
}

}  // namespace tessera::stages
