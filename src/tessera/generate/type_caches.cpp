#include <algorithm>
#include <map>

#include "tessera/generate/held_decoder.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"

// Caches of another type than the model's keys and values: new ones are cast before they are written, and an Attention
// that reads caches works in their type, between casts of its queries and its result. So no other form of a cache is
// ever made. What only moves elements on the way (heads that are repeated) moves them in the caches' type; for whatever
// else reads a cache, it is cast back.
namespace tessera::generate {
namespace {

class CacheTypes {
 public:
  CacheTypes(HeldDecoder& held, DType type) : held_(held), graph_(*held.model.graph), type_(type) {}

  void run() {
    for (const std::string& name : held_.caches) {
      Value* cache = graph_.find(name);
      if (cache->dtype() == type_) continue;
      own_type_[cache] = cache->dtype();
      cache->data = Tensor::zeros(type_, cache->data.dims);
      cache->type.dtype = type_;
    }
    for (Node* node : rewrite::nodes_of(graph_)) visit(*node);
    graph_.verify("type_caches");
  }

 private:
  bool is_changed(const Value* value) const { return own_type_.contains(value); }

  void visit(Node& node) {
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](const Value* value) { return is_changed(value); }))
      return;
    if (node.is("Cast")) return;
    if (node.is("TensorScatter") && is_changed(node.input(0))) {
      cast_operand(node, 1, type_);
      retype(node, node.outputs[0], own_type_.at(node.inputs[0]));
    } else if (ops::moves_of(node) >= ops::Moves::part && is_changed(node.input(0))) {
      for (Value* result : node.outputs)
        if (result) retype(node, result, own_type_.at(node.inputs[0]));
    } else if (node.is("Attention")) {
      for (const size_t operand : {ops::kQuery, ops::kKey, ops::kValue}) cast_operand(node, operand, type_);
      // Others may be float32 in any case, whose range holds what hides keys.
      for (const size_t operand : {ops::kMask, ops::kSink})
        if (const Value* given = node.input(operand);
            given && is_float(given->dtype()) && given->dtype() != type_ && given->dtype() != DType::float32)
          cast_operand(node, operand, DType::float32);
      Value* y = node.outputs[0];
      const DType before = y->dtype();
      y->type.dtype = type_;
      Value* cast = cast_to(y, before, rewrite::node_after(graph_, &node));
      graph_.replace_uses(y, cast);
      graph_.set_input(cast->producer, 0, y);
    } else {
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (is_changed(node.inputs[i])) cast_operand(node, i, own_type_.at(node.inputs[i]));
    }
  }

  void retype(Node& node, Value* result, DType own) {
    ops::infer_results(ops::op_of(node), node);
    own_type_[result] = own;
  }

  void cast_operand(Node& node, size_t index, DType type) {
    Value* operand = node.inputs[index];
    if (operand->dtype() != type) graph_.set_input(&node, index, cast_to(operand, type, &node));
  }

  Value* cast_to(Value* value, DType type, const Node* before) {
    return rewrite::emit(graph_, "Cast", {value}, before, {rewrite::attribute("to", static_cast<int64_t>(type))});
  }

  HeldDecoder& held_;
  Graph& graph_;
  DType type_;
  std::map<const Value*, DType> own_type_;  // of caches, and of what has their elements: in the model
};

}  // namespace

void type_caches(HeldDecoder& held, DType type) {
  CacheTypes(held, type).run();
}

}  // namespace tessera::generate
