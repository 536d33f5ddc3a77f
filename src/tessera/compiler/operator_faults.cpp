#include "tessera/compiler/operator_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace tessera::compiler {
namespace {

// The split of one subfactor of a node, according to its annotated operands.
struct Split {
  std::vector<AxisRef> axes;
  std::string by;  // the operand
  const Value* operand = nullptr;
};

class OperatorFaults {
 public:
  OperatorFaults(const Compiled& compiled, const OnnxModel& model, const DevicePlan& plan, const std::string& name)
      : model_(model), layout_(*compiled.layout), labels_(compiled.labels), plan_(plan), name_(name) {
    for (const AnnotationRequest& annotation : plan.annotations) annotated_.insert(annotation.pattern);
  }

  std::vector<DeviceFault> run() {
    for (const spmd::NodeLayout& node : layout_.nodes)
      if (!node.node->outputs.empty() &&
          !(node.node->outputs[0] && plan_.copies.contains(known(*node.node->outputs[0]))))
        look_at(node);
    return std::move(faults_);
  }

 private:
  // The name by which annotations mean the value.
  const std::string& known(const Value& value) const {
    const auto label = labels_.find(&value);
    return label == labels_.end() ? value.name : label->second;
  }

  std::string shown(const Value& value) const {
    const auto copied = plan_.copies.find(known(value));
    return copied == plan_.copies.end() ? value.name : copied->second;
  }

  template <typename... Args>
  void say(const spmd::NodeLayout& node, fmt::format_string<Args...> format, Args&&... args) {
    const std::string label = node.node->label();
    std::string what = fmt::format(format, std::forward<Args>(args)...);
    std::string name = node.node->outputs[0] ? node.node->outputs[0]->name : "";
    name.erase(0, name.rfind('/') + 1);  // without the iteration
    if (auto read = labels_read(node); !read.empty() && !said_.emplace(std::move(read), name, what).second) return;
    faults_.push_back({label, fmt::format("{}, configuration '{}': {}", label, name_, what)});
  }

  // Whether a node of the file has both tensors as operands. Operators and stacks that rewriting makes stand for
  // several nodes or tensors, so they may combine operands that no node does.
  bool meet_in_file(const Value& a, const Value& b) const {
    const Graph& graph = *model_.graph;
    const Value *first = graph.find(a.name), *second = graph.find(b.name);
    if (!a.rows.empty() || !b.rows.empty()) return false;
    if (!first || !second) return true;  // in bodies, values get names later
    return std::any_of(first->uses.begin(), first->uses.end(), [&](const Use& use) {
      const auto& operands = use.node->inputs;
      return std::find(operands.begin(), operands.end(), second) != operands.end();
    });
  }

  // The labels of a node's operands, which are the same for its copies in other iterations.
  std::set<std::string> labels_read(const spmd::NodeLayout& node) const {
    std::set<std::string> read;
    for (const Value* operand : node.node->inputs)
      if (const auto label = labels_.find(operand); label != labels_.end()) read.insert(label->second);
    return read;
  }

  // Reports at most one fault of a node.
  void look_at(const spmd::NodeLayout& node) {
    std::vector<Split> splits(node.subfactors.size());
    for (size_t o = 0; o < node.operand_slots.size(); ++o) {
      if (node.operand_slots[o] < 0) continue;
      const spmd::Slot& slot = layout_.slots[static_cast<size_t>(node.operand_slots[o])];
      if (!annotated_.contains(known(*slot.value))) continue;
      const std::string name = shown(*slot.value);
      for (size_t d = 0; d < slot.dims.size(); ++d)
        for (size_t p = 0; p < slot.dims[d].parts.size(); ++p) {
          const auto& axes = slot.dims[d].parts[p].axes;
          if (slot.dims[d].open) continue;
          const int sub = spmd::subfactor_along(node, o, d, p);
          if (sub < 0 && axes.empty()) continue;
          if (sub < 0 || (!axes.empty() && !node.subfactors[static_cast<size_t>(sub)].splittable))
            return say(node, "the operator needs axis {} of '{}' whole, but it is split into {}", d, name,
                       ranks_of(axes));
          Split& split = splits[static_cast<size_t>(sub)];
          if (split.by.empty())
            split = {axes, name, slot.value};
          else if (split.axes != axes && meet_in_file(*split.operand, *slot.value))
            return say(node, "axis {} of '{}' must be split like the corresponding axis of '{}', on the same devices",
                       d, name, split.by);
        }
    }
    for (size_t a = 0; a < splits.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        for (const AxisRef& axis : splits[a].axes)
          if (std::any_of(splits[b].axes.begin(), splits[b].axes.end(),
                          [&](const AxisRef& other) { return axis.overlaps(other); }) &&
              meet_in_file(*splits[a].operand, *splits[b].operand))
            return say(node,
                       "different axes of '{}' and '{}' are split over the same devices, so no device holds "
                       "what some results need",
                       splits[b].by, splits[a].by);
  }

  const OnnxModel& model_;
  const spmd::Layout& layout_;
  const std::map<const Value*, std::string>& labels_;
  const DevicePlan& plan_;
  const std::string& name_;
  std::set<std::string> annotated_;
  std::set<std::tuple<std::set<std::string>, std::string, std::string>> said_;  // about nodes in bodies
  std::vector<DeviceFault> faults_;
};

}  // namespace

std::vector<DeviceFault> operator_faults(const Compiled& compiled, const OnnxModel& model, const DevicePlan& plan,
                                         const std::string& name) {
  std::vector<DeviceFault> faults = plan.faults;
  for (DeviceFault& fault : OperatorFaults(compiled, model, plan, name).run()) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace tessera::compiler
