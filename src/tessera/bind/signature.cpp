#include "tessera/bind/signature.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/bind/binding.h"
#include "tessera/bind/decisions.h"
#include "tessera/ir/flow.h"

namespace tessera::bind {
namespace {

// Tensors and bodies count by their presence only.
std::string value_text(const AttributeValue& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::vector<int64_t>> || std::is_same_v<Held, std::vector<float>> ||
                      std::is_same_v<Held, std::vector<std::string>>)
          return fmt::format("{}", fmt::join(held, ","));
        else if constexpr (std::is_arithmetic_v<Held> || std::is_same_v<Held, std::string>)
          return fmt::format("{}", held);
        else
          return "-";
      },
      value);
}

std::string attributes_text(const Node& node) {
  std::string text;
  for (const Attribute& attribute : node.attributes)
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", attribute.name, value_text(attribute.value));
  return text.empty() ? "" : "{" + text + "}";
}

bool is_weight(const Location& place) {
  return place.where == Location::Where::fixed || place.where == Location::Where::state;
}

}  // namespace

std::string type_text(const kernels::TensorDesc& desc) {
  if (!desc.present()) return "-";
  std::string text = fmt::format("{}[{}]", name_of(desc.dtype), fmt::join(desc.dims, ","));
  if (desc.block) text += fmt::format(" in blocks of {}", desc.block);
  if (!desc.strides.empty()) text += fmt::format(" by {}", fmt::join(desc.strides, ","));
  return text;
}

std::string signature_of(const NodeGroup& group, const Step& step) {
  std::string text = step.info.op + " " + attributes_text(*group.root);
  for (const kernels::Follower& follower : group.followers)
    text += fmt::format("+{}{}", attributes_text(*follower.node), fmt::join(follower.operands, ","));
  for (size_t i = 0; i < step.operands.size(); ++i)
    text += fmt::format(" {}{}", type_text(step.operands[i]), is_weight(step.inputs[i]) ? "*" : "");
  text += " ->";
  for (const kernels::TensorDesc& result : step.results) text += " " + type_text(result);
  return text;
}

namespace {

// `count`: the elements of an operand, as the program has it: those of a packed weight are bytes to its kernel.
void add_extents(StepWork& work, const Step& step, const std::function<int64_t(size_t)>& count) {
  const auto floats = [](const kernels::TensorDesc& desc) { return desc.present() && is_float(desc.dtype); };
  if (const auto found = std::find_if(step.operands.begin(), step.operands.end(), floats); found != step.operands.end())
    work.dtype = found->dtype;
  double elements = 0;
  for (size_t i = 0; i < step.operands.size(); ++i)
    elements += step.operands[i].present() ? static_cast<double>(count(i)) : 0;
  for (const kernels::TensorDesc& desc : step.results)
    elements += desc.present() ? static_cast<double>(desc.count()) : 0;
  if (step.results.empty() || step.results[0].dims.empty()) return;
  const kernels::TensorDesc& result = step.results[0];
  cost::add_extents(work, elements, static_cast<double>(result.count()), static_cast<double>(result.dims.back()));
}

}  // namespace

std::vector<StepWork> Binding::works() const {
  const flow::Flow flow = flow::flow_of(subject_.graph());
  std::vector<StepWork> works(machine_.steps.size());
  for (size_t s = 0; s < works.size(); ++s) {
    const Step& step = *machine_.steps[s];
    const NodeGroup& group = decisions_->grouping->groups[s];
    const Node* node = group.own ? group.own->outputs[0]->producer : group.root;
    works[s].runs = static_cast<double>(values_.sizes().number(flow::runs_of(flow, node)));
    works[s].flops = step.cost.flops;
    works[s].bytes = static_cast<double>(step.cost.read + step.cost.written);
    works[s].joined = group.bucket.size() > 1;
    if (!step.kernel) continue;
    works[s].signature = signature_of(group, step);
    // Kernels skip the scores that a causal mask hides: half of them, where queries and keys are the same.
    if (group.root->get_int("is_causal", 0) != 0 && group.root->inputs[0]->shape() == group.root->inputs[1]->shape())
      works[s].flops /= 2;
    add_extents(works[s], step, [&](size_t i) {
      return decisions_->packed.find(s, i) ? values_.type(group.inputs[i]).count() : step.operands[i].count();
    });
  }
  return works;
}

}  // namespace tessera::bind
