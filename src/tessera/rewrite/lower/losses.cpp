#include "tessera/base/error.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/upgrade/steps.h"

// The loss of an element is the score of its class, negated and weighted; an element of the ignored class has weight 0:
//   loss = NegativeLogLikelihoodLoss (x [N, C, d], target [N, d], weight [C])
//   → picked = GatherElements (x, target [N, 1, d]) along C, w = Gather (weight, target) [N, d], loss = −picked · w
// SoftmaxCrossEntropyLoss does the same to LogSoftmax (scores). Types are not known yet.
namespace tessera::rewrite {
namespace {

class LossLowering {
 public:
  LossLowering(Graph& graph, Node* node) : graph_(graph), node_(node) {}

  void run() {
    check_form();
    Value* x = node_->input(0);
    if (node_->is("SoftmaxCrossEntropyLoss")) {
      x = add("LogSoftmax", {x}, {attribute("axis", int64_t{1})});
      if (Value* probabilities = node_->output(1)) {
        if (!replace(graph_, probabilities, x)) replace(graph_, probabilities, add("Identity", {x}));
      }
    }
    if (Value* loss = node_->output(0)) replace(graph_, loss, reduced(x));
    graph_.erase(node_);
  }

 private:
  void check_form() const {
    if (!node_->input(0) || !node_->input(1))
      fail("lower", "{}: it needs scores and a target; the file is damaged", node_->label());
    const size_t most = node_->is("SoftmaxCrossEntropyLoss") ? 2 : 1;
    for (size_t r = most; r < node_->outputs.size(); ++r)
      if (node_->outputs[r])
        fail("lower", "{}: it has a result {}, '{}', which {} does not give; leave it out", node_->label(), r + 1,
             node_->outputs[r]->name, node_->op_type);
  }

  Value* add(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes = {}) {
    return untyped(graph_, type, std::move(operands), node_, std::move(attributes));
  }

  Value* like(double value, Value* other) {
    return add("CastLike", {graph_.constant_scalar(DType::int64, value), other});
  }

  Value* reduced(Value* x) {
    Value* target = node_->input(1);
    Value* ignored = nullptr;
    if (const auto* index = node_->get<int64_t>("ignore_index")) {
      ignored = add("Equal", {target, like(static_cast<double>(*index), target)});
      target = add("Where", {ignored, like(0, target), target});
    }
    Value* axis = graph_.constant_int64({1});
    Value* picked = add("GatherElements", {x, add("Unsqueeze", {target, axis})}, {attribute("axis", int64_t{1})});
    Value* loss = add("Neg", {add("Squeeze", {picked, axis})});
    Value* weight =
        node_->input(2) ? add("Gather", {node_->input(2), target}, {attribute("axis", int64_t{0})}) : nullptr;
    if (ignored) weight = add("Where", {ignored, like(0, x), weight ? weight : like(1, x)});
    if (weight)
      loss = ignored ? add("Where", {ignored, like(0, x), add("Mul", {loss, weight})}) : add("Mul", {loss, weight});

    const std::string reduction = node_->get_string("reduction", "mean");
    const std::vector<Attribute> whole = {attribute("keepdims", int64_t{0})};
    if (reduction == "none") return loss;
    if (reduction == "sum") return add("ReduceSum", {loss}, whole);
    if (reduction != "mean")
      fail("lower", "{}: the reduction is '{}'; it must be none, sum or mean", node_->label(), reduction);
    if (!weight) return add("ReduceMean", {loss}, whole);
    return add("Div", {add("ReduceSum", {loss}, whole), add("ReduceSum", {weight}, whole)});
  }

  Graph& graph_;
  Node* node_;
};

void lower_losses_of(Graph& graph) {
  for (Node* node : nodes_of(graph)) {
    for (Graph* region : node->regions()) lower_losses_of(*region);
    if (node->is("NegativeLogLikelihoodLoss") || node->is("SoftmaxCrossEntropyLoss")) LossLowering(graph, node).run();
  }
}

}  // namespace

void lower_losses(OnnxModel& model) {
  lower_losses_of(*model.graph);
}

}  // namespace tessera::rewrite
