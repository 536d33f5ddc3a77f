#include "tessera/base/error.h"
#include "tessera/ir/experts.h"
#include "tessera/ops/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower.h"

// com.microsoft's mixture of experts:
//
//   MoE (x [tokens, hidden], logits [tokens, experts], fc1, fc2, …)
//   → Softmax → TopK, by its sum if that is asked for → Experts (x, indices, values, fc1ᵀ, fc2ᵀ, …)
namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

/// The activation that its attribute names, as attributes of Experts.
std::vector<Attribute> activation_of(const Node& node, Gated gated) {
  const std::string name = node.get_string("activation_type", "relu");
  std::vector<Attribute> attributes;
  if (name == "identity" || name == "relu") {
    attributes.push_back(attribute("activation", name));
  } else if (name == "gelu") {
    attributes.push_back(attribute("activation", std::string("gelu_tanh")));
  } else if (name == "silu") {
    attributes.push_back(attribute("activation", std::string("swish")));
  } else if (name == "swiglu") {
    if (gated == Gated::no)
      fail_node(node, "its activation is swiglu, but swiglu_fusion is 0 and fc3_experts_weights is missing");
    attributes = {attribute("activation", std::string("swish")),
                  attribute("alpha", node.get_float("activation_alpha", 1)),
                  attribute("beta", node.get_float("activation_beta", 0))};
    if (node.find_attribute("swiglu_limit"))
      attributes.push_back(attribute("limit", node.get_float("swiglu_limit", 0)));
  } else {
    fail_node(node, "its activation_type is '{}'; identity, relu, gelu, silu and swiglu are supported", name);
  }
  return attributes;
}

Values mixture(Lowerer& l) {
  enum MoeOperand : size_t { kInput, kRouter, kFc1, kFc1Bias, kFc2, kFc2Bias, kFc3, kFc3Bias };
  for (const char* other : {"use_sparse_mixer", "swiglu_limit_after_activation"})
    if (l.node.get_int(other, 0) != 0) fail_node(l.node, "{} is not supported; export without it", other);
  for (const size_t operand : {size_t{kFc1}, size_t{kFc2}})
    if (!l.has(operand)) fail_node(l.node, "its operand {} is missing", operand);
  const Shape given = l.in(kInput)->shape();
  if (given.empty()) fail_node(l.node, "its input is a scalar; it must be [tokens, hidden]");
  Expr tokens = 1;
  for (size_t d = 0; d + 1 < given.size(); ++d) tokens = tokens * given[d];
  const bool is_unit = l.node.get_string("activation_type", "relu") == "swiglu";
  const int64_t fusion = is_unit ? l.node.get_int("swiglu_fusion", 0) : 0;
  if (fusion < 0 || fusion > 2) fail_node(l.node, "its swiglu_fusion is {}; it may be 0, 1 or 2", fusion);
  const bool apart = l.has(kFc3);
  if (apart && fusion != 0) fail_node(l.node, "swiglu_fusion is {}, but there is fc3_experts_weights, too", fusion);
  const Gated gated = apart ? Gated::apart : fusion == 1 ? Gated::interleaved : fusion == 2 ? Gated::halves : Gated::no;
  std::vector<Attribute> attributes = activation_of(l.node, gated);
  attributes.push_back(attribute("gated", std::string(name_of(gated))));

  Value* all = l.b.emit("Softmax", {l.in(kRouter)}, {attribute("axis", int64_t{-1})});
  const Values chosen = l.b.emit_all("", "TopK", {all, l.b.graph.constant_int64({l.node.get_int("k", 1)})}, {}, 2);
  Value* weights = chosen[0];
  if (l.node.get_int("normalize_routing_weights", 0) != 0) weights = l.b.div(weights, l.b.sum(weights, {1}));
  Values operands(ExpertsOperand::offset);
  operands[ExpertsOperand::tokens] = l.b.reshape(l.in(kInput), {tokens, given.back()});
  operands[ExpertsOperand::choices] = chosen[1];
  operands[ExpertsOperand::weights] = weights;
  operands[ExpertsOperand::gate] = l.b.turn(l.in(kFc1));
  operands[ExpertsOperand::gate_bias] = l.in(kFc1Bias);
  operands[ExpertsOperand::down] = l.b.turn(l.in(kFc2));
  operands[ExpertsOperand::down_bias] = l.in(kFc2Bias);
  if (apart) operands[ExpertsOperand::up] = l.b.turn(l.in(kFc3));
  operands[ExpertsOperand::up_bias] = l.in(kFc3Bias);
  while (!operands.back()) operands.pop_back();
  Value* y = l.b.emit_all(kExpertsDomain, "Experts", operands, attributes, 1).front();
  return {l.b.reshape(y, given)};
}

}  // namespace

std::vector<Lowering> experts_lowerings() {
  return {{.op_type = "MoE", .operands = 3, .lower = mixture, .domain = "com.microsoft"}};
}

}  // namespace tessera::rewrite
