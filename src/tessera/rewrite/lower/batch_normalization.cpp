#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

// A BatchNormalization that trains normalizes by the mean and the variance of its batch, over all dimensions but the
// channels, and moves the running statistics toward these:
//   y, mean', var' = BatchNormalization <training_mode = 1> (x [N, C, d], scale, bias, mean, var)
//   → m = ReduceMean (x), c = x − m, v = ReduceMean (c · c), y = c / √(v + epsilon) · scale + bias,
//     mean' = momentum · mean + (1 − momentum) · m, var' likewise of v
// The statistics are those of the whole batch, however it is split, as in PyTorch's SyncBatchNorm.
namespace tessera::rewrite {
namespace {

class BatchNormalizationLowering {
 public:
  BatchNormalizationLowering(Graph& graph, Node* node)
      : graph_(graph), node_(node), rank_(static_cast<int64_t>(node->input(0)->rank())) {
    for (int64_t d = 0; d < rank_; ++d)
      if (d != 1) others_.push_back(d);
  }

  void run() {
    const DType type = node_->input(0)->dtype();
    Value* x = as(node_->input(0), bits_of(type) < 32 ? DType::float32 : type);
    Value* mean = mean_of(x);
    Value* centered = add("Sub", {x, mean});
    Value* variance = mean_of(add("Mul", {centered, centered}));
    if (Value* result = node_->output(0)) {
      Value* stable = add("Add", {variance, number(x, node_->get_float("epsilon", 1e-5F))});
      Value* normalized = add("Div", {centered, add("Sqrt", {stable})});
      give(result, add("Add", {add("Mul", {normalized, column(1, x)}), column(2, x)}));
    }
    for (const auto& [index, statistic] : {std::pair(1, mean), std::pair(2, variance)})
      if (Value* result = node_->output(static_cast<size_t>(index)))
        give(result, moved(node_->input(static_cast<size_t>(index) + 2), statistic));
    graph_.erase(node_);
  }

 private:
  Value* add(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes = {}) {
    return emit(graph_, type, std::move(operands), node_, std::move(attributes));
  }
  Value* number(const Value* like, double value) { return graph_.constant_scalar(like->dtype(), value); }
  Value* as(Value* value, DType type) {
    return value->dtype() == type ? value : add("Cast", {value}, {attribute("to", static_cast<int64_t>(type))});
  }
  Value* mean_of(Value* x) { return add("ReduceMean", {x, graph_.constant_int64(others_)}); }

  // A per-channel operand as [C, 1, …].
  Value* column(size_t operand, const Value* like) {
    Value* value = as(node_->input(operand), like->dtype());
    if (rank_ == 2) return value;
    std::vector<int64_t> axes;
    for (int64_t d = 1; d + 1 < rank_; ++d) axes.push_back(d);
    return add("Unsqueeze", {value, graph_.constant_int64(axes)});
  }

  Value* moved(Value* running, Value* statistic) {
    const double momentum = node_->get_float("momentum", 0.9F);
    Value* of_batch = as(add("Squeeze", {statistic, graph_.constant_int64(others_)}), running->dtype());
    return add("Add", {add("Mul", {running, number(running, momentum)}),
                       add("Mul", {of_batch, number(running, 1 - momentum)})});
  }

  void give(Value* result, Value* value) {
    value = as(value, result->dtype());
    if (!replace(graph_, result, value)) replace(graph_, result, add("Identity", {value}));
  }

  Graph& graph_;
  Node* node_;
  const int64_t rank_;
  std::vector<int64_t> others_;  // all dimensions but the channels
};

}  // namespace

void lower_batch_normalization(OnnxModel& model) {
  for (Node* node : nodes_of(*model.graph))
    if (node->is("BatchNormalization") && node->get_int("training_mode", 0) != 0)
      BatchNormalizationLowering(*model.graph, node).run();
}

}  // namespace tessera::rewrite
