#include "tessera/compiler/explain.h"

#include <algorithm>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/compiler/summary.h"
#include "tessera/compiler/tensor_info.h"
#include "tessera/ir/glob.h"
#include "tessera/spmd/decide/nodes.h"

namespace tessera::compiler {
namespace {

// An operand or a result of a node of the layout.
struct Occurrence {
  size_t node = 0, index = 0;
  bool is_result = false;
};

// Calls `add` for each occurrence of a value, nodes in their order, results before operands.
template <typename Add>
void each_occurrence(const spmd::Layout& layout, const Add& add) {
  for (size_t n = 0; n < layout.nodes.size(); ++n) {
    const Node& node = *layout.nodes[n].node;
    for (size_t t = 0; t < node.outputs.size(); ++t) add(node.outputs[t], Occurrence{n, t, true});
    for (size_t t = 0; t < node.inputs.size(); ++t) add(node.inputs[t], Occurrence{n, t, false});
  }
}

class Explainer {
 public:
  Explainer(const Compiled& compiled, const Value* value)
      : compiled_(compiled),
        mesh_(compiled.program->mesh),
        value_(value),
        costs_(mesh_, compiled.program->hints, compiled.prices.get()) {}

  Explanation run(const std::vector<Occurrence>& occurrences) {
    result_.tensor = info_of(*value_);
    if (!value_->producer) stored();
    for (const Occurrence& at : occurrences) {
      const spmd::NodeLayout& node = compiled_.layout->nodes[at.node];
      const spmd::NodeDecision& decision = compiled_.decisions.nodes[at.node];
      if (at.is_result)
        add("produced by " + node.node->label(), decision.results[at.index], node.result_slots[at.index]);
      else
        add("used by " + node.node->label(), decision.operands[at.index], node.operand_slots[at.index]);
    }
    auto output = compiled_.decisions.outputs.find(value_);
    if (output != compiled_.decisions.outputs.end()) add("output", output->second, -1);
    for (const spmd::ReshardRecord& record : compiled_.program->reshards)
      if (record.value == value_->name) {
        result_.reshards.push_back(summarize(record, *compiled_.program));
        if (costs_.in_seconds())
          result_.reshards.back().seconds = costs_.between(record.from, record.to, value_->dtype());
      }
    result_.in_seconds = costs_.in_seconds();
    if (value_->producer) compare(value_->producer);
    return std::move(result_);
  }

 private:
  void stored() {
    auto source = compiled_.decisions.sources.find(value_);
    auto slots = compiled_.layout->of_value.find(value_);
    if (source == compiled_.decisions.sources.end()) return;
    bool annotated =
        slots != compiled_.layout->of_value.end() && compiled_.layout->slots[slots->second.front()].annotated;
    // Layouts without an annotation follow from the uses, which are listed next.
    add(value_->kind == ValueKind::input ? "given" : "stored", source->second, annotated ? slots->second.front() : -1);
  }

  void compare(const Node* maker) {
    const auto& outputs = maker->outputs;
    const auto at = static_cast<size_t>(std::find(outputs.begin(), outputs.end(), value_) - outputs.begin());
    for (const spmd::Alternative& each : spmd::alternatives_of(maker, *compiled_.model->graph, *compiled_.layout,
                                                               compiled_.decisions, costs_, compiled_.storage)) {
      Explanation::Alternative made{each.results[at].str(mesh_),
                                    {},
                                    each.chosen,
                                    each.price.cost,
                                    each.price.disobeyed + each.price.gathered > 0};
      for (size_t t = 0; t < each.operands.size(); ++t)
        made.operands.push_back(maker->inputs[t] && !each.operands[t].dims.empty() ? each.operands[t].str(mesh_) : "");
      result_.alternatives.push_back(std::move(made));
    }
  }

  void add(std::string where, const Sharding& sharding, int slot) {
    Explanation::Place place{std::move(where), sharding.str(mesh_), {}, {}};
    if (slot >= 0) {
      const auto& dims = compiled_.layout->slots[slot].dims;
      for (size_t d = 0; d < dims.size(); ++d)
        for (const spmd::PartState& part : dims[d].parts)
          for (size_t a = 0; a < part.axes.size(); ++a)
            place.axes.push_back({static_cast<int>(d), dims[d].parts.size() > 1 ? part.size.str() : "",
                                  part.axes[a].str(mesh_), part.origins[a].by, part.origins[a].round});
      for (const spmd::Lost& lost : compiled_.propagation.lost)
        if (lost.slot == slot) place.lost.push_back({lost.dim, lost.axis.str(mesh_), lost.reason});
    }
    result_.places.push_back(std::move(place));
  }

  const Compiled& compiled_;
  const Mesh& mesh_;
  const Value* value_;
  const spmd::Costs costs_;
  Explanation result_;
};

}  // namespace

namespace {

// The tensor, or the stack that it is a row of; null: neither.
const Value* explained(const Compiled& compiled, const std::string& tensor) {
  if (const Value* value = compiled.model->graph->find(tensor)) return value;
  for (const Value* state : compiled.model->graph->values_of(ValueKind::state))
    if (std::find(state->rows.begin(), state->rows.end(), tensor) != state->rows.end()) return state;
  return nullptr;
}

}  // namespace

bool can_explain(const Compiled& compiled, const std::string& tensor) {
  return explained(compiled, tensor) != nullptr;
}

Explanation explain(const Compiled& compiled, const std::string& tensor) {
  const Value* value = explained(compiled, tensor);
  if (!value)
    fail("explain",
         "the model, as compiled, has no tensor '{}'{} (use names of the file; rewriting may have absorbed the tensor)",
         tensor, nearest_names(tensor_names(*compiled.model->graph), tensor));
  if (value->kind == ValueKind::expression || !value->has_shape())
    fail("explain", "'{}' is used in shape computation only and has no layout; name a tensor that carries data",
         tensor);
  std::vector<Occurrence> occurrences;
  each_occurrence(*compiled.layout, [&](const Value* each, const Occurrence& at) {
    if (each == value) occurrences.push_back(at);
  });
  Explanation explanation = Explainer(compiled, value).run(occurrences);
  if (value->name != tensor)
    explanation.row = std::find(value->rows.begin(), value->rows.end(), tensor) - value->rows.begin();
  return explanation;
}

std::vector<Explanation> explain_all(const Compiled& compiled) {
  std::vector<const Value*> order;
  std::unordered_map<const Value*, std::vector<Occurrence>> occurrences;
  std::unordered_map<const Value*, const Value*> parameter_of;
  const Value* parameter = nullptr;  // or another state, which a node read last
  std::optional<size_t> last;        // node
  each_occurrence(*compiled.layout, [&](const Value* value, const Occurrence& at) {
    if (at.node != last)
      for (const Value* input : compiled.layout->nodes[at.node].node->inputs)
        if (input && input->kind == ValueKind::state) parameter = input;
    last = at.node;
    if (!value || value->kind == ValueKind::expression || value->kind == ValueKind::constant || !value->has_shape())
      return;
    const auto [found, fresh] = occurrences.try_emplace(value);
    found->second.push_back(at);
    if (!fresh) return;
    order.push_back(value);
    parameter_of[value] = value->kind == ValueKind::state ? value : parameter;
  });
  std::vector<Explanation> all;
  for (const Value* value : order) {
    Explanation& made = all.emplace_back(Explainer(compiled, value).run(occurrences[value]));
    if (const Value* near = parameter_of[value]) made.parameter = near->name;
  }
  return all;
}

}  // namespace tessera::compiler
