#include "tessera/ops/experts.h"

#include <algorithm>
#include <array>

#include "tessera/ir/experts.h"
#include "tessera/ops/dims.h"
#include "tessera/ops/gradients.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/require.h"

namespace tessera::ops {
namespace {

constexpr std::array<std::string_view, 5> kActivations = {"identity", "relu", "gelu", "gelu_tanh", "swish"};

struct ExpertsDims {
  Expr tokens, choices, experts, in, hidden, out;
};

bool is_shard(const Node& node) {
  return node.op_type == "ExpertsShard";
}

// The hidden extent of `columns` that hold g's, and u's if it is fused.
Expr hidden_of(const Node& node, const Expr& columns, Gated gated) {
  if (!is_fused(gated)) return columns;
  const auto half = Expr::exact_divide(columns, 2);
  if (!half) fail_node(node, "the {} columns of its gate are not two of each hidden element", columns.str());
  return *half;
}

ExpertsDims experts_dims(const Node& node) {
  const Gated gated = gated_of(node);
  const Shape &x = require_rank(node, ExpertsOperand::tokens, "the tokens", 2),
              &choices = require_rank(node, ExpertsOperand::choices, "the choices", 2),
              &weights = require_rank(node, ExpertsOperand::weights, "the weights of choices", 2),
              &gate = require_rank(node, ExpertsOperand::gate, "the gate", 3),
              &down = require_rank(node, ExpertsOperand::down, "the second matrix", 3);
  ExpertsDims dims;
  dims.tokens = require_equal(node, x[0], choices[0], "the tokens", "those that choose");
  dims.tokens = require_equal(node, dims.tokens, weights[0], "the tokens", "those with weights");
  dims.choices = require_equal(node, choices[1], weights[1], "the choices", "their weights");
  dims.experts = require_equal(node, gate[0], down[0], "the experts of the first matrix", "those of the second");
  dims.in = require_equal(node, x[1], gate[1], "the tokens' elements", "the rows of the first matrix");
  dims.hidden = require_equal(node, hidden_of(node, gate[2], gated), down[1], "the hidden elements",
                              "the rows of the second matrix");
  dims.out = down[2];
  const auto require_bias = [&](size_t index, std::string_view what, const Expr& columns) {
    if (!node.input(index)) return;
    const Shape& bias = require_rank(node, index, what, 2);
    require_equal(node, bias[0], dims.experts, "the experts of a bias", "those of the matrices");
    require_equal(node, bias[1], columns, "the elements of a bias", "the columns of its matrix");
  };
  require_bias(ExpertsOperand::gate_bias, "the gate's bias", gate[2]);
  require_bias(ExpertsOperand::down_bias, "the second bias", dims.out);
  if ((gated == Gated::apart) != has_operand(node, ExpertsOperand::up))
    fail_node(node, "the operand 'up' is there exactly if gated is 'apart'");
  if (gated == Gated::apart) {
    const Shape& up = require_rank(node, ExpertsOperand::up, "up", 3);
    require_equal(node, up[0], dims.experts, "the experts of 'up'", "those of the gate");
    require_equal(node, up[1], dims.in, "the rows of 'up'", "those of the gate");
    require_equal(node, up[2], dims.hidden, "the columns of 'up'", "those of the gate");
    require_bias(ExpertsOperand::up_bias, "the bias of 'up'", dims.hidden);
  } else if (node.input(ExpertsOperand::up_bias)) {
    fail_node(node, "it has a bias of 'up', but no operand 'up'");
  }
  return dims;
}

void require_attributes(const Node& node) {
  const std::string activation = node.get_string("activation", "identity");
  if (std::find(kActivations.begin(), kActivations.end(), activation) == kActivations.end())
    fail_node(node, "its activation is '{}'; it may be identity, relu, gelu, gelu_tanh or swish", activation);
  if (const DType dtype = operand(node, ExpertsOperand::choices).dtype();
      dtype != DType::int64 && dtype != DType::int32)
    fail_node(node, "choices must be int64 or int32, not {}; Cast them", name_of(dtype));
  if (!is_float(operand(node, ExpertsOperand::tokens).dtype()))
    fail_node(node, "its tokens are {}; they must be floating-point numbers",
              name_of(node.input(ExpertsOperand::tokens)->dtype()));
}

void infer_experts(Node& node) {
  require_attributes(node);
  const DType dtype = require_same_dtype(
      node, {ExpertsOperand::tokens, ExpertsOperand::weights, ExpertsOperand::gate, ExpertsOperand::down,
             ExpertsOperand::gate_bias, ExpertsOperand::down_bias, ExpertsOperand::up, ExpertsOperand::up_bias});
  const ExpertsDims dims = experts_dims(node);
  set_result(node, 0, sum_dtype(node, dtype), {dims.tokens, dims.out});
}

// "t i, t c, t c, e i f, e f o, e f, e o, e i f, e f -> t o | c: sum, i: whole, f: sum, e: lookup". In fused columns, f
// is beside a dimension of two.
Rule experts_rule(const Node& node) {
  const ExpertsDims dims = experts_dims(node);
  const Gated gated = gated_of(node);
  Rule rule = blank_rule(node);
  const DimFactors t{rule.add("t", dims.tokens)};
  const DimFactors c{rule.add("c", dims.choices, FactorKind::reduction)};
  const DimFactors i{rule.add("i", dims.in, FactorKind::whole)};
  const DimFactors f{rule.add("f", dims.hidden, FactorKind::reduction)};
  const DimFactors e{rule.add("e", dims.experts, is_shard(node) ? FactorKind::whole : FactorKind::lookup)};
  const DimFactors o{rule.add("o", dims.out)};
  DimFactors columns = f;
  if (is_fused(gated)) {
    const int two = rule.add("two", 2, FactorKind::whole);
    columns.insert(gated == Gated::halves ? columns.begin() : columns.end(), two);
  }
  const auto set = [&](size_t operand, std::vector<DimFactors> of) {
    if (node.input(operand)) rule.operands[operand] = std::move(of);
  };
  set(ExpertsOperand::tokens, {t, i});
  set(ExpertsOperand::choices, {t, c});
  set(ExpertsOperand::weights, {t, c});
  set(ExpertsOperand::gate, {e, i, columns});
  set(ExpertsOperand::gate_bias, {e, columns});
  set(ExpertsOperand::down, {e, f, o});
  set(ExpertsOperand::down_bias, {e, o});
  set(ExpertsOperand::up, {e, i, f});
  set(ExpertsOperand::up_bias, {e, f});
  rule.results[0] = {t, o};
  return rule;
}

// The second bias is added once. A part of the experts computes what chooses one of them, and gives zeros elsewhere.
std::vector<Value*> localize_experts(Localizer& local) {
  const int f = local.factor("f"), e = local.factor("e");
  if (local.split[f] && local.node.input(ExpertsOperand::down_bias))
    local.inputs[ExpertsOperand::down_bias] = local.on_first_shard(local.inputs[ExpertsOperand::down_bias], f);
  if (!local.split[e]) return local.same();
  std::vector<Value*> operands = local.inputs;
  operands.resize(ExpertsOperand::offset);
  const std::string& name = local.node.input(ExpertsOperand::gate)->name;
  operands.push_back(local.graph.add_expression(name + ".offset", {local.offsets[e]}, true));
  operands.push_back(local.graph.add_expression(name + ".experts", {local.rule.factors[e].size}, true));
  std::vector<Attribute> attributes = local.node.attributes;
  const DType dtype = local.node.input(ExpertsOperand::tokens)->dtype();
  if (local.outputs[0].dtype != dtype) attributes.push_back({"accumulate", std::string("float32"), ""});
  return {local.emit("ExpertsShard", std::move(operands), local.outputs[0], std::move(attributes), kExpertsDomain)};
}

// A shard computes the choices of its experts: if all are chosen equally often, this share.
Expr experts_flops(const Node& node) {
  const ExpertsDims dims = experts_dims(node);
  const Expr hidden = gated_of(node) == Gated::no ? dims.hidden : 2 * dims.hidden;
  const Expr all = 2 * dims.tokens * dims.choices * (dims.in * hidden + dims.hidden * dims.out);
  const auto count = is_shard(node) ? content_of(node.input(ExpertsOperand::all)) : std::nullopt;
  const auto experts = count ? count->front().constant() : std::nullopt;
  return experts && *experts > 0 ? floordiv(all * dims.experts, *experts) : all;
}

// --- As ordinary operators

/// Writes a network on rows that are gathered or repeated, in the operators of ONNX.
class Network {
 public:
  Network(NodeBuilder& b, const Node& node) : b_(b), node_(node), gated_(gated_of(node)) {}

  // From x [..., in] with matrices [..., in, hidden] and biases that broadcast: h, [..., hidden].
  Value* hidden(Value* x, Value* gate, Value* gate_bias, Value* up, Value* up_bias) const {
    Value* g = with_bias(b_.emit("MatMul", {x, gate}), gate_bias);
    if (gated_ == Gated::no) return activated(g);
    if (gated_ == Gated::apart) return product(g, with_bias(b_.emit("MatMul", {x, up}), up_bias));
    // [..., two · hidden] apart, with the pair before or behind.
    Shape apart = g->shape();
    const Expr hidden = *Expr::exact_divide(apart.back(), 2);
    const auto last = static_cast<int64_t>(apart.size()) - 1;
    apart.back() = gated_ == Gated::halves ? 2 : hidden;
    apart.push_back(gated_ == Gated::halves ? hidden : Expr(2));
    Value* pairs = b_.reshape(g, apart);
    const int64_t axis = gated_ == Gated::halves ? last : last + 1;
    Shape one = g->shape();
    one.back() = hidden;
    const auto part = [&](int64_t i) { return b_.reshape(b_.slice(pairs, axis, i, i + 1), one); };
    return product(part(0), part(1));
  }

  Value* with_bias(Value* x, Value* bias) const { return bias ? b_.add(x, bias) : x; }

 private:
  Value* product(Value* g, Value* u) const {
    if (const Attribute* limit = node_.find_attribute("limit")) {
      const float most = std::get<float>(limit->value);
      u = b_.emit("Clip", {u, b_.number(u, -most), b_.number(u, most)});
    }
    if (const float beta = node_.get_float("beta", 0); beta != 0) u = b_.add(u, beta);
    return b_.mul(activated(g), u);
  }

  Value* activated(Value* g) const {
    if (const Attribute* limit = node_.find_attribute("limit"))
      g = b_.emit("Clip", {g, nullptr, b_.number(g, std::get<float>(limit->value))});
    const std::string activation = node_.get_string("activation", "identity");
    if (activation == "relu") return b_.unary("Relu", g);
    if (activation == "gelu") return b_.emit("Gelu", {g}, {{"approximate", std::string("none"), ""}});
    if (activation == "gelu_tanh") return b_.emit("Gelu", {g}, {{"approximate", std::string("tanh"), ""}});
    if (activation == "swish") return b_.emit("Swish", {g}, {{"alpha", node_.get_float("alpha", 1), ""}});
    return g;
  }

  NodeBuilder& b_;
  const Node& node_;
  Gated gated_;
};

// The matrices of each choice are gathered. In a shard, other experts' choices take any of them, and are left out;
// where it may have no expert, there is a row of zeros for them to take.
std::vector<Value*> experts_body(NodeBuilder& b, const Node& node) {
  const ExpertsDims dims = experts_dims(node);
  const Network network(b, node);
  const auto wide = [&](size_t operand) -> Value* {
    Value* value = node.input(operand);
    return value ? b.cast(value, DType::float32) : nullptr;
  };
  const bool narrow = bits_of(node.input(ExpertsOperand::tokens)->dtype()) == 16;
  const auto in = [&](size_t operand) { return narrow ? wide(operand) : node.input(operand); };
  Value* choices = b.cast(node.input(ExpertsOperand::choices), DType::int64);
  Value* inside = nullptr;
  if (is_shard(node)) {
    const auto number = [&](size_t operand) { return b.cast(node.input(operand), DType::int64); };
    Value* global = b.where(b.less(choices, 0), b.add(choices, number(ExpertsOperand::all)), choices);
    Value* local = b.sub(global, number(ExpertsOperand::offset));
    Value* extent = b.scalar(DType::int64, dims.experts);
    inside = b.emit("And", {b.greater(local, -1), b.emit("Less", {local, extent})});
    choices = b.where(inside, local, 0.0);
  }
  const auto chosen = [&](size_t operand) -> Value* {
    if (!node.input(operand)) return nullptr;
    Value* table = in(operand);
    if (inside && dims.experts.lower_bound().value_or(0) < 1) {
      std::vector<int64_t> pads(2 * table->rank(), 0);
      pads[table->rank()] = 1;
      table = b.emit("Pad", {table, b.graph.constant_int64(std::move(pads))});
    }
    Value* rows = b.emit("Gather", {table, choices});
    if (rows->rank() == 4) return rows;
    Shape as_row = rows->shape();
    as_row.insert(as_row.end() - 1, 1);
    return b.reshape(rows, as_row);
  };
  Value* x = b.reshape(in(ExpertsOperand::tokens), {dims.tokens, 1, 1, dims.in});
  Value* h = network.hidden(x, chosen(ExpertsOperand::gate), chosen(ExpertsOperand::gate_bias),
                            chosen(ExpertsOperand::up), chosen(ExpertsOperand::up_bias));
  Value* weights = b.reshape(in(ExpertsOperand::weights), {dims.tokens, dims.choices, 1, 1});
  Value* bias = chosen(ExpertsOperand::down_bias);
  Value* y = network.with_bias(b.emit("MatMul", {b.mul(h, weights), chosen(ExpertsOperand::down)}),
                               bias ? b.mul(bias, weights) : nullptr);
  y = b.reshape(y, {dims.tokens, dims.choices, dims.out});
  if (!inside) return {b.cast(b.sum(y, {1}, false), node.output()->dtype())};
  // Where nothing is chosen here, -0 changes no sum.
  inside = b.reshape(inside, {dims.tokens, dims.choices, 1});
  Value* count = b.sum(b.cast(inside, DType::int64), {1}, false);
  Value* sum = b.sum(b.where(inside, y, 0.0), {1}, false);
  return {b.cast(b.where(b.greater(count, 0), sum, -0.0), node.output()->dtype())};
}

Indices experts_indices(const Node& node) {
  return {.operand = ExpertsOperand::choices, .extents = {shape_of(node, ExpertsOperand::gate).at(0)}};
}

}  // namespace

Value* every_expert(NodeBuilder& b, const Node& node) {
  const ExpertsDims dims = experts_dims(node);
  const auto per_row = [&](size_t operand) -> Value* {
    Value* bias = node.input(operand);
    return bias ? b.reshape(bias, {bias->shape()[0], 1, bias->shape()[1]}) : nullptr;
  };
  const Network network(b, node);
  Value* x = b.reshape(node.input(ExpertsOperand::tokens), {1, dims.tokens, dims.in});
  Value* h = network.hidden(x, node.input(ExpertsOperand::gate), per_row(ExpertsOperand::gate_bias),
                            node.input(ExpertsOperand::up), per_row(ExpertsOperand::up_bias));
  Value* y =
      network.with_bias(b.emit("MatMul", {h, node.input(ExpertsOperand::down)}), per_row(ExpertsOperand::down_bias));
  // How much of each expert a token takes, [experts, tokens, 1].
  Value* numbers = b.reshape(b.range(dims.experts), {dims.experts, 1, 1});
  Value* choices = b.reshape(b.cast(node.input(ExpertsOperand::choices), DType::int64), {1, dims.tokens, dims.choices});
  choices = b.where(b.less(choices, 0), b.add(choices, b.scalar(DType::int64, dims.experts)), choices);
  Value* weights = b.reshape(node.input(ExpertsOperand::weights), {1, dims.tokens, dims.choices});
  Value* taken = b.sum(b.where(b.emit("Equal", {choices, numbers}), weights, 0.0), {2});
  return b.sum(b.mul(y, taken), {0}, false);
}

std::vector<OpDef> experts_ops() {
  return {
      {.type = "Experts",
       .domain = kExpertsDomain,
       .infer = infer_experts,
       .rule = experts_rule,
       .flops = experts_flops,
       .localize = localize_experts,
       .gradient = experts_gradient,
       .body = experts_body,
       .wide_sums = true,
       .indices = experts_indices},
      {.type = "ExpertsShard",
       .domain = kExpertsDomain,
       .infer = infer_experts,
       .rule = experts_rule,
       .flops = experts_flops,
       .localize = localize_experts,
       .body = experts_body},
  };
}

}  // namespace tessera::ops
