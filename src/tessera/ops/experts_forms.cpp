#include "tessera/ops/experts.h"
#include "tessera/ops/library/codes.h"
#include "tessera/ops/library/infer.h"

// Mixtures of experts by ordinary operators.
namespace tessera::ops {
namespace {

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

/// Codes [..., columns, bytes] with what belongs to them, as numbers [..., rows, columns] of float32.
Value* decoded(NodeBuilder& b, const Node& node, const ExpertsCodes& matrix, Value* codes, Value* scales,
               Value* zeros) {
  const int64_t bits = code_bits(node, matrix);
  Shape shape = codes->shape();
  const Expr rows = shape.back() * (8 / bits);
  if (bits == 4) codes = halves_of_bytes(b, codes);
  // [..., columns, blocks, rows of a block].
  const bool whole_columns = scales->shape().back().is(1);
  shape.back() = scales->shape().back();
  shape.push_back(whole_columns ? rows : Expr(node.get_int("block_size", 1)));
  Value* numbers = b.cast(b.reshape(codes, shape), DType::float32);
  const auto of_block = [&](Value* value) {
    Shape beside = value->shape();
    beside.push_back(1);
    return b.reshape(b.cast(value, DType::float32), beside);
  };
  numbers = zeros ? b.sub(numbers, of_block(zeros)) : b.add(numbers, -static_cast<double>(1 << (bits - 1)));
  shape.pop_back();
  shape.back() = rows;
  return b.turn(b.reshape(b.mul(numbers, of_block(scales)), shape));
}

}  // namespace

// In a shard, other experts' choices take any of them, and are left out;
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
  if (is_experts_shard(node)) {
    const auto number = [&](size_t operand) { return b.cast(node.input(operand), DType::int64); };
    Value* global = b.where(b.less(choices, 0), b.add(choices, number(ExpertsOperand::all)), choices);
    Value* local = b.sub(global, number(ExpertsOperand::offset));
    Value* extent = b.scalar(DType::int64, dims.experts);
    inside = b.emit("And", {b.greater(local, -1), b.emit("Less", {local, extent})});
    choices = b.where(inside, local, 0.0);
  }
  const auto gathered = [&](size_t operand) -> Value* {
    if (!node.input(operand)) return nullptr;
    Value* table = is_float(node.input(operand)->dtype()) ? in(operand) : node.input(operand);
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
  const auto chosen = [&](const ExpertsCodes& matrix) -> Value* {
    Value* rows = gathered(matrix.codes);
    if (!rows || !has_codes(node)) return rows;
    return decoded(b, node, matrix, rows, gathered(matrix.scales), gathered(matrix.zeros));
  };
  Value* x = b.reshape(in(ExpertsOperand::tokens), {dims.tokens, 1, 1, dims.in});
  Value* h = network.hidden(x, chosen(kGateCodes), gathered(ExpertsOperand::gate_bias), chosen(kUpCodes),
                            gathered(ExpertsOperand::up_bias));
  Value* weights = b.reshape(in(ExpertsOperand::weights), {dims.tokens, dims.choices, 1, 1});
  Value* bias = gathered(ExpertsOperand::down_bias);
  Value* y = network.with_bias(b.emit("MatMul", {b.mul(h, weights), chosen(kDownCodes)}),
                               bias ? b.mul(bias, weights) : nullptr);
  y = b.reshape(y, {dims.tokens, dims.choices, dims.out});
  if (!inside) return {b.cast(b.sum(y, {1}, false), node.output()->dtype())};
  // Where nothing is chosen here, -0 changes no sum.
  inside = b.reshape(inside, {dims.tokens, dims.choices, 1});
  Value* count = b.sum(b.cast(inside, DType::int64), {1}, false);
  Value* sum = b.sum(b.where(inside, y, 0.0), {1}, false);
  return {b.cast(b.where(b.greater(count, 0), sum, -0.0), node.output()->dtype())};
}

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

}  // namespace tessera::ops
