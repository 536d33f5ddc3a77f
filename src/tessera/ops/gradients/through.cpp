#include "tessera/ops/gradients/through.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/ops/gradients/gradient.h"
#include "tessera/ops/op.h"

namespace tessera::ops {
namespace {

class Backward {
 public:
  Backward(Graph& graph, const std::vector<Node*>& forward, const std::vector<Value*>& of)
      : graph_(graph), forward_(forward) {
    for (Value* value : of) depends_.emplace(value, nullptr);
    for (const Node* node : forward_) {
      for (size_t i = 0; i < node->inputs.size(); ++i) {
        Value* operand = node->inputs[i];
        if (!operand || !depends_.contains(operand) || !trains_through(*node, i)) continue;
        for (Value* result : node->outputs)
          if (result && is_float(result->dtype())) depends_.emplace(result, operand);
        break;
      }
    }
  }

  void run(const std::vector<KnownGradient>& known) {
    for (const auto& [value, gradient] : known)
      if (depends_.contains(value)) add(value, gradient);
    for (auto node = forward_.rbegin(); node != forward_.rend(); ++node) visit(**node);
  }

  Value* of(Value* value) const {
    const auto found = gradients_.find(value);
    return found == gradients_.end() ? nullptr : found->second;
  }

 private:
  void add(Value* value, Value* gradient) {
    Value*& sum = gradients_[value];
    sum = sum ? NodeBuilder(graph_, "grad." + value->name).add(sum, gradient) : gradient;
  }

  void visit(Node& node) {
    std::vector<Value*> of_results;
    bool reached = false;
    for (Value* result : node.outputs) {
      of_results.push_back(result ? of(result) : nullptr);
      reached |= of_results.back() != nullptr;
    }
    if (!reached) return;
    std::vector<bool> wanted;
    bool any = false;
    for (Value* operand : node.inputs) {
      wanted.push_back(operand && depends_.contains(operand) && is_float(operand->dtype()) &&
                       trains_through(node, wanted.size()));
      any |= wanted.back();
    }
    if (!any) return;
    const OpDef* op = find_op(node.op_type, node.domain);
    if (!op || !op->gradient) {
      size_t i = 0;
      while (!wanted[i]) ++i;
      fail(
          "gradient",
          "{} has no gradient{}, and the loss depends on {} through it; freeze what trains there, or take the path out "
          "of the loss",
          node.label(), op && !op->no_gradient.empty() ? fmt::format(" ({})", op->no_gradient) : "",
          path_to(node.inputs[i]));
    }
    GradientBuilder builder(graph_, node, std::move(of_results), std::move(wanted));
    op->gradient(builder);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (Value* given = builder.given()[i]) add(node.inputs[i], given);
  }

  static bool trains_through(const Node& node, size_t operand) {
    const OpDef* op = find_op(node.op_type, node.domain);
    return !op || std::find(op->untrained.begin(), op->untrained.end(), operand) == op->untrained.end();
  }

  // "'w' (w → h → y)", in the order of the computation.
  std::string path_to(const Value* value) const {
    std::vector<const Value*> path;
    for (; value; value = depends_.at(value)) path.push_back(value);
    constexpr size_t kMost = 6;
    std::string text;
    for (size_t i = path.size(); i-- > 0;) {
      if (path.size() > kMost && i + 3 < path.size() && i > 2) {
        if (i == 3) text += " → …";
        continue;
      }
      text += (text.empty() ? "" : " → ") + path[i]->name;
    }
    return fmt::format("'{}' ({})", path.back()->name, text);
  }

  Graph& graph_;
  const std::vector<Node*>& forward_;
  std::map<const Value*, const Value*> depends_;  // and on which operand, on the way to a value that is asked for
  std::map<const Value*, Value*> gradients_;
};

}  // namespace

std::vector<Value*> gradients_through(Graph& graph, const std::vector<Node*>& forward,
                                      const std::vector<KnownGradient>& known, const std::vector<Value*>& of) {
  Backward backward(graph, forward, of);
  backward.run(known);
  std::vector<Value*> found;
  found.reserve(of.size());
  for (Value* value : of) found.push_back(backward.of(value));
  return found;
}

}  // namespace tessera::ops
