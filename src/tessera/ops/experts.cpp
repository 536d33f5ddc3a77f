#include "tessera/ops/experts.h"

#include <algorithm>
#include <array>

#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

constexpr std::array<std::string_view, 5> kActivations = {"identity", "relu", "gelu", "gelu_tanh", "swish"};

// The hidden extent of `columns` that hold g's, and u's if it is fused.
Expr hidden_of(const Node& node, const Expr& columns, Gated gated) {
  if (!is_fused(gated)) return columns;
  const auto half = Expr::exact_divide(columns, 2);
  if (!half) fail_node(node, "the {} columns of its gate are not two per hidden element", columns.str());
  return *half;
}

// --- Matrices of codes

int64_t block_of(const Node& node) {
  const int64_t block = node.get_int("block_size", 0);
  if (block < 1) fail_node(node, "its block_size is {}; matrices of codes need one of 1 or more", block);
  return block;
}

// How many codes a column has whose bytes these are.
Expr codes_in(const Node& node, const ExpertsCodes& matrix, const Expr& bytes) {
  return bytes * (8 / code_bits(node, matrix));
}

void require_codes(const Node& node, const ExpertsCodes& matrix) {
  if (!node.input(matrix.codes)) return;
  const Shape& codes = require_rank(node, matrix.codes, "a matrix of codes", 3);
  if (operand(node, matrix.codes).dtype() != DType::uint8)
    fail_node(node, "its operand {} has scales, but is {}; codes are uint8", matrix.codes,
              name_of(operand(node, matrix.codes).dtype()));
  const Expr rows = codes_in(node, matrix, codes[2]), blocks = floordiv(rows, block_of(node));
  const auto require_beside = [&](size_t index, DType dtype) {
    const Shape& has = require_rank(node, index, "what belongs to blocks of codes", 3);
    if (operand(node, index).dtype() != dtype)
      fail_node(node, "its operand {} is {}; it must be {}", index, name_of(operand(node, index).dtype()),
                name_of(dtype));
    require_equal(node, has[0], codes[0], "the experts of scales or zero points", "those of their matrix");
    require_equal(node, has[1], codes[1], "the columns of scales or zero points", "those of their matrix");
    if (has[2].is(1)) return;
    require_equal(node, has[2], blocks, "the scales or zero points of a column", "its blocks");
    if (!Expr::exact_divide(rows, block_of(node)))
      fail_node(node, "columns of {} codes are not whole blocks of {}", rows.str(), block_of(node));
  };
  require_beside(matrix.scales, DType::float32);
  if (!node.input(matrix.zeros)) return;
  require_beside(matrix.zeros, DType::uint8);
  require_equal(node, shape_of(node, matrix.zeros)[2], shape_of(node, matrix.scales)[2], "the zero points of a column",
                "its scales");
}

// As if it held numbers: [experts, rows, columns].
Shape matrix_shape(const Node& node, const ExpertsCodes& matrix, std::string_view what) {
  const Shape& shape = require_rank(node, matrix.codes, what, 3);
  return has_codes(node) ? Shape{shape[0], codes_in(node, matrix, shape[2]), shape[1]} : shape;
}

// --- Types

void require_matrices(const Node& node) {
  for (const ExpertsCodes& matrix : {kGateCodes, kDownCodes, kUpCodes}) {
    if (has_codes(node) && node.input(matrix.codes) && !node.input(matrix.scales))
      fail_node(node, "its operand {} has no scales, but its gate has; either all matrices are codes, or none",
                matrix.codes);
    if (has_codes(node)) require_codes(node, matrix);
    if (!(has_codes(node) && node.input(matrix.codes)) && (node.input(matrix.scales) || node.input(matrix.zeros)))
      fail_node(node, "it has scales or zero points of operand {}, which is not a matrix of codes", matrix.codes);
  }
  if (has_codes(node) && block_of(node) * code_bits(node, kDownCodes) % 8 != 0)
    fail_node(node, "its block_size is {}, but a byte holds two codes; it must be even", block_of(node));
  if (has_codes(node) && operand(node, ExpertsOperand::tokens).dtype() == DType::float64)
    fail_node(node,
              "its matrices are codes, which multiply float32, float16 and bfloat16, not float64; Cast its tokens");
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
  require_matrices(node);
  std::vector<size_t> numbers = {ExpertsOperand::tokens, ExpertsOperand::weights, ExpertsOperand::gate_bias,
                                 ExpertsOperand::down_bias, ExpertsOperand::up_bias};
  if (!has_codes(node)) numbers.insert(numbers.end(), {ExpertsOperand::gate, ExpertsOperand::down, ExpertsOperand::up});
  const DType dtype = require_same_dtype(node, numbers);
  const ExpertsDims dims = experts_dims(node);
  set_result(node, 0, sum_dtype(node, dtype), {dims.tokens, dims.out});
}

// "t i, t c, t c, e i f, e f o, e f, e o, e i f, e f -> t o | c: sum, i: whole, f: sum, e: lookup". In fused columns, f
// is beside a dimension of two. Codes have "…, e (f f_in) -, e o (f f_bytes), …", where f are blocks.
Rule experts_rule(const Node& node) {
  const ExpertsDims dims = experts_dims(node);
  const Gated gated = gated_of(node);
  const bool codes = has_codes(node);
  Rule rule = blank_rule(node);
  const DimFactors t{rule.add("t", dims.tokens)};
  const DimFactors c{rule.add("c", dims.choices, FactorKind::reduction)};
  const DimFactors i{rule.add("i", dims.in, FactorKind::whole)};
  // Where scales belong to whole columns, hidden elements are cut between bytes.
  const bool of_columns = codes && shape_of(node, ExpertsOperand::down_scales)[2].is(1);
  const int64_t block = of_columns ? 8 / code_bits(node, kDownCodes) : codes ? block_of(node) : 1;
  const auto blocks = Expr::exact_divide(dims.hidden, block);
  if (!blocks) fail_node(node, "{} hidden elements are not whole blocks of {}", dims.hidden.str(), block);
  const DimFactors f{rule.add("f", *blocks, FactorKind::reduction)};
  const DimFactors e{rule.add("e", dims.experts, is_experts_shard(node) ? FactorKind::whole : FactorKind::lookup)};
  const DimFactors o{rule.add("o", dims.out)};
  const auto blocks_of = [&](std::string_view name, int64_t elements) {
    DimFactors all = f;
    if (elements > 1) all.push_back(rule.add(std::string(name), elements, FactorKind::whole));
    return all;
  };
  const DimFactors hidden = blocks_of("f_in", block);
  DimFactors columns = hidden;
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
  set(ExpertsOperand::gate_bias, {e, columns});
  set(ExpertsOperand::down_bias, {e, o});
  set(ExpertsOperand::up_bias, {e, hidden});
  rule.results[0] = {t, o};
  if (!codes) {
    set(ExpertsOperand::gate, {e, i, columns});
    set(ExpertsOperand::down, {e, hidden, o});
    set(ExpertsOperand::up, {e, i, hidden});
    return rule;
  }
  for (const size_t operand : {ExpertsOperand::gate, ExpertsOperand::gate_scales, ExpertsOperand::gate_zeros})
    set(operand, {e, columns, {}});
  for (const size_t operand : {ExpertsOperand::up, ExpertsOperand::up_scales, ExpertsOperand::up_zeros})
    set(operand, {e, hidden, {}});
  set(ExpertsOperand::down, {e, o, blocks_of("f_bytes", block * code_bits(node, kDownCodes) / 8)});
  for (const size_t operand : {ExpertsOperand::down_scales, ExpertsOperand::down_zeros})
    if (node.input(operand)) set(operand, {e, o, shape_of(node, operand)[2].is(1) ? DimFactors{} : f});
  return rule;
}

// The second bias is added once. A part of the experts computes what chooses one of them, and gives zeros elsewhere.
std::vector<Value*> localize_experts(Localizer& local) {
  const int f = local.factor("f"), e = local.factor("e");
  if (local.split[f] && local.node.input(ExpertsOperand::down_bias))
    local.inputs[ExpertsOperand::down_bias] = local.on_first_shard(local.inputs[ExpertsOperand::down_bias], f);
  if (!local.split[e]) return local.same();
  std::vector<Value*> operands = local.inputs;
  operands.resize(std::max<size_t>(operands.size(), ExpertsOperand::all + 1));
  const std::string& name = local.node.input(ExpertsOperand::gate)->name;
  operands[ExpertsOperand::offset] = local.graph.add_expression(name + ".offset", {local.offsets[e]}, true);
  operands[ExpertsOperand::all] = local.graph.add_expression(name + ".experts", {local.rule.factors[e].size}, true);
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
  const auto count = is_experts_shard(node) ? content_of(node.input(ExpertsOperand::all)) : std::nullopt;
  const auto experts = count ? count->front().constant() : std::nullopt;
  return experts && *experts > 0 ? floordiv(all * dims.experts, *experts) : all;
}

Indices experts_indices(const Node& node) {
  return {.operand = ExpertsOperand::choices, .extents = {shape_of(node, ExpertsOperand::gate).at(0)}};
}

}  // namespace

int64_t code_bits(const Node& node, const ExpertsCodes& matrix) {
  const int64_t bits = node.get_int(matrix.bits, 4);
  if (bits != 4 && bits != 8) fail_node(node, "its {} are {}; codes of 4 and 8 bits are supported", matrix.bits, bits);
  return bits;
}

ExpertsDims experts_dims(const Node& node) {
  const Gated gated = gated_of(node);
  const Shape &x = require_rank(node, ExpertsOperand::tokens, "the tokens", 2),
              &choices = require_rank(node, ExpertsOperand::choices, "the choices", 2),
              &weights = require_rank(node, ExpertsOperand::weights, "the weights of choices", 2),
              gate = matrix_shape(node, kGateCodes, "the gate"),
              down = matrix_shape(node, kDownCodes, "the second matrix");
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
    fail_node(node, "the operand 'up' must be given if gated is 'apart', and only then");
  if (gated == Gated::apart) {
    const Shape up = matrix_shape(node, kUpCodes, "up");
    require_equal(node, up[0], dims.experts, "the experts of 'up'", "those of the gate");
    require_equal(node, up[1], dims.in, "the rows of 'up'", "those of the gate");
    require_equal(node, up[2], dims.hidden, "the columns of 'up'", "those of the gate");
    require_bias(ExpertsOperand::up_bias, "the bias of 'up'", dims.hidden);
  } else if (node.input(ExpertsOperand::up_bias)) {
    fail_node(node, "it has a bias of 'up', but no operand 'up'");
  }
  return dims;
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
       .indices = experts_indices,
       .examples = experts_examples},
      {.type = "ExpertsShard",
       .domain = kExpertsDomain,
       .infer = infer_experts,
       .rule = experts_rule,
       .flops = experts_flops,
       .localize = localize_experts,
       .no_gradient = kMadeByPartitioner,
       .body = experts_body,
       .examples = experts_shard_examples},
  };
}

}  // namespace tessera::ops
