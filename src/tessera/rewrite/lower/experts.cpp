#include "tessera/ir/experts.h"

#include "tessera/base/error.h"
#include "tessera/ops/library/codes.h"
#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

// com.microsoft's mixtures of experts:
//
//   MoE (x [tokens, hidden], logits [tokens, experts], fc1, fc2, …)
//   → Softmax → TopK, by its sum if that is asked for → Experts (x, indices, values, fc1ᵀ, fc2ᵀ, …)
//
// and QMoE, whose matrices are codes.
namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

/// The activation that the node names, as attributes of Experts.
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

/// One matrix of each expert, as Experts takes it.
struct Matrix {
  Value* matrix = nullptr;  ///< null: there is none
  Value* bias = nullptr;
  // Only for codes:
  Value* scales = nullptr;
  Value* zeros = nullptr;
  int64_t bits = 4;
};

struct Matrices {
  Matrix fc1, fc2, fc3;
};

void refuse_attributes(const Node& node, std::initializer_list<const char*> others) {
  for (const char* other : others)
    if (node.get_int(other, 0) != 0) fail_node(node, "{} is not supported; export without it", other);
}

Shape rows_of(const Lowerer& l) {
  const Shape& given = l.in(0)->shape();
  if (given.empty()) fail_node(l.node, "its input is a scalar; it must be [tokens, hidden]");
  Expr tokens = 1;
  for (size_t d = 0; d + 1 < given.size(); ++d) tokens = tokens * given[d];
  return {tokens, given.back()};
}

Value* mixture(Lowerer& l, Value* choices, Value* weights, const Matrices& of, std::vector<Attribute> more = {}) {
  const bool is_unit = l.node.get_string("activation_type", "relu") == "swiglu";
  const int64_t fusion = is_unit ? l.node.get_int("swiglu_fusion", 0) : 0;
  if (fusion < 0 || fusion > 2) fail_node(l.node, "its swiglu_fusion is {}; it may be 0, 1 or 2", fusion);
  const bool apart = of.fc3.matrix != nullptr;
  if (apart && fusion != 0)
    fail_node(l.node, "swiglu_fusion is {}, but fc3_experts_weights is given, too; leave it out", fusion);
  const Gated gated = apart ? Gated::apart : fusion == 1 ? Gated::interleaved : fusion == 2 ? Gated::halves : Gated::no;
  std::vector<Attribute> attributes = activation_of(l.node, gated);
  attributes.push_back(attribute("gated", std::string(name_of(gated))));
  attributes.insert(attributes.end(), more.begin(), more.end());

  Values operands(ExpertsOperand::count);
  operands[ExpertsOperand::tokens] = l.b.reshape(l.in(0), rows_of(l));
  operands[ExpertsOperand::choices] = choices;
  operands[ExpertsOperand::weights] = weights;
  operands[ExpertsOperand::gate_bias] = of.fc1.bias;
  operands[ExpertsOperand::down_bias] = of.fc2.bias;
  operands[ExpertsOperand::up_bias] = of.fc3.bias;
  const auto set = [&](const ExpertsCodes& place, const Matrix& matrix) {
    operands[place.codes] = matrix.matrix;
    operands[place.scales] = matrix.scales;
    operands[place.zeros] = matrix.zeros;
    if (matrix.scales) attributes.push_back(attribute(place.bits, matrix.bits));
  };
  set(kGateCodes, of.fc1);
  set(kDownCodes, of.fc2);
  set(kUpCodes, of.fc3);
  while (!operands.back()) operands.pop_back();
  Value* y = l.b.emit_all(kExpertsDomain, "Experts", operands, attributes, 1).front();
  return l.b.reshape(y, l.in(0)->shape());
}

Values top(Lowerer& l, Value* scores) {
  return l.b.emit_all("", "TopK", {scores, l.b.graph.constant_int64({l.node.get_int("k", 1)})}, {}, 2);
}

Values moe(Lowerer& l) {
  enum MoeOperand : size_t { kInput, kRouter, kFc1, kFc1Bias, kFc2, kFc2Bias, kFc3, kFc3Bias };
  refuse_attributes(l.node, {"use_sparse_mixer", "swiglu_limit_after_activation"});
  for (const size_t operand : {size_t{kFc1}, size_t{kFc2}})
    if (!l.has(operand)) fail_node(l.node, "its operand {} is missing", operand);
  const Values chosen = top(l, l.b.emit("Softmax", {l.in(kRouter)}, {attribute("axis", int64_t{-1})}));
  Value* weights = chosen[0];
  if (l.node.get_int("normalize_routing_weights", 0) != 0) weights = l.b.div(weights, l.b.sum(weights, {1}));
  Matrices of{.fc1 = {l.b.turn(l.in(kFc1)), l.in(kFc1Bias)}, .fc2 = {l.b.turn(l.in(kFc2)), l.in(kFc2Bias)}};
  if (l.has(kFc3)) of.fc3.matrix = l.b.turn(l.in(kFc3));
  of.fc3.bias = l.in(kFc3Bias);
  return {mixture(l, chosen[1], weights, of)};
}

// --- QMoE

/// Where a matrix of codes is among QMoE's operands.
struct CodesPlace {
  std::string_view name;
  size_t codes, scales, bias, zeros;
};
constexpr CodesPlace kFirst{"fc1", 2, 3, 4, 11}, kSecond{"fc2", 5, 6, 7, 12}, kThird{"fc3", 8, 9, 10, 13};
constexpr size_t kRouterWeights = 14, kQMoeOperands = 15;

/// The first `count` codes of bytes along the last dimension, a byte each.
Value* unpacked(Lowerer& l, Value* bytes, int64_t bits, const Expr& count) {
  if (bits == 8) return bytes;
  Value* all = ops::halves_of_bytes(l.b, bytes);
  return all->shape().back() == count ? all : l.b.slice(all, static_cast<int64_t>(all->rank()) - 1, 0, count);
}

// Scales are [experts, columns, blocks], or [experts, columns] for whole columns. Zero points have the same shape,
// packed along the last dimension. Experts takes zero points a byte each, so that any block may be on any rank.
Matrix codes_at(Lowerer& l, const CodesPlace& place) {
  if (!l.has(place.codes)) {
    for (const size_t operand : {place.scales, place.bias, place.zeros})
      if (l.has(operand)) fail_node(l.node, "its operand {} belongs to {}, which is missing", operand, place.name);
    return {};
  }
  if (!l.has(place.scales)) fail_node(l.node, "{} has no scales", place.name);
  Matrix made{
      .matrix = l.in(place.codes), .bias = l.in(place.bias), .scales = l.b.cast(l.in(place.scales), DType::float32)};
  made.bits = l.node.get_int(fmt::format("{}_expert_weight_bits", place.name), l.node.get_int("expert_weight_bits", 4));
  if (made.bits != 4 && made.bits != 8)
    fail_node(l.node, "the codes of {} have {} bits; 4 and 8 are supported", place.name, made.bits);
  Shape shape = made.scales->shape();
  const bool by_columns = shape.size() == 2;
  if (by_columns) shape.push_back(1);
  if (shape.size() != 3)
    fail_node(l.node, "the scales of {} are {}; they must be [experts, columns, blocks] or [experts, columns]",
              place.name, to_string(shape));
  made.scales = l.b.reshape(made.scales, shape);
  if (!l.has(place.zeros)) return made;
  made.zeros = unpacked(l, l.in(place.zeros), made.bits, by_columns ? shape[1] : shape[2]);
  if (by_columns) made.zeros = l.b.reshape(made.zeros, shape);
  return made;
}

// QMoE (x, logits, fc1, scales, …) → TopK → Softmax of the chosen logits → Experts with matrices of codes. Weights
// that are given besides the logits are gathered. Example of 4-bit zero points of three blocks: bytes 0x21 0x03 → 1,
// 2, 3.
Values qmoe(Lowerer& l) {
  constexpr size_t kRouter = 1;
  refuse_attributes(l.node, {"use_sparse_mixer", "swiglu_limit_after_activation"});
  if (const std::string type = l.node.get_string("quant_type", "int"); type != "int")
    fail_node(l.node, "its quant_type is '{}'; only integer codes ('int') are supported", type);
  if (l.node.get_int("weights_prepacked", -1) == 1)
    fail_node(l.node, "weights_prepacked is 1: its codes are in the order of another engine; export with 0");
  for (size_t operand = kQMoeOperands; operand < l.node.inputs.size(); ++operand)
    if (l.has(operand))
      fail_node(l.node, "its operand {} belongs to floating-point codes, which are not supported", operand);
  const Matrices of{.fc1 = codes_at(l, kFirst), .fc2 = codes_at(l, kSecond), .fc3 = codes_at(l, kThird)};
  for (const Matrix& matrix : {of.fc1, of.fc2})
    if (!matrix.matrix) fail_node(l.node, "it needs fc1_experts_weights and fc2_experts_weights");

  const Values chosen = top(l, l.in(kRouter));
  Value* weights = nullptr;
  if (!l.has(kRouterWeights)) {
    weights = l.b.emit("Softmax", {chosen[0]}, {attribute("axis", int64_t{-1})});
  } else {
    weights = l.b.emit("GatherElements", {l.in(kRouterWeights), chosen[1]}, {attribute("axis", int64_t{-1})});
    if (l.node.get_int("normalize_routing_weights", 0) != 0) weights = l.b.div(weights, l.b.sum(weights, {1}));
  }
  // Scales of whole columns let hidden elements be split anywhere between bytes.
  const int64_t block = l.node.get_int("block_size", 0);
  return {mixture(l, chosen[1], weights, of, {attribute("block_size", block > 0 ? block : 8 / of.fc2.bits)})};
}

}  // namespace

std::vector<Lowering> experts_lowerings() {
  return {{.op_type = "MoE", .operands = 3, .lower = moe, .domain = "com.microsoft"},
          {.op_type = "QMoE", .operands = 4, .lower = qmoe, .domain = "com.microsoft"}};
}

}  // namespace tessera::rewrite
