#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/library/codes.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/matmul.h"
#include "tessera/ops/registry.h"

// Products of quantized tensors, summed in int32: exact, and so the same in every layout.
namespace tessera::ops {
namespace {

void infer_matmul_integer(Node& node) {
  for (const size_t index : {0, 1}) {
    require_bytes(node, index);
    if (shape_of(node, index).size() < 2) fail_node(node, "operand {} is not a matrix", index);
  }
  const Shape &a = shape_of(node, 0), &b = shape_of(node, 1);
  require_zero_point(node, 2, 0, a[a.size() - 2]);
  require_zero_point(node, 3, 1, b.back());
  set_result(node, 0, DType::int32, matmul_shape(node));
}

/// "b m k, k n, m, n -> b m n | k: sum": a list of zero points is split with its dimension.
Rule matmul_integer_rule(const Node& node) {
  Rule rule = matmul_factors(node);
  const auto beside = [&](size_t index, const DimFactors& along) {
    if (is_list_of_zero_points(node, index)) rule.operands[index] = {along};
  };
  beside(2, rule.operands[0][rule.operands[0].size() - 2]);
  beside(3, rule.operands[1].back());
  return rule;
}

// A matrix in blocks: codes of 4 or 8 bits, and for each column and block of rows a scale, perhaps a zero point. The
// sum over rows can be split between blocks. Where codes or zero points of 4 bits share a byte, pairs stay together.

/// Operand 0's dimensions but the last are factors of the result's; appends k and n to the rule. The sum of `blocks`
/// blocks is cut between groups of `together` blocks; null: it cannot be cut.
struct BlockFactors {
  DimFactors k;       ///< of operand 0's last dimension
  DimFactors blocks;  ///< of a dimension of blocks
  DimFactors groups;  ///< of a dimension of groups of blocks
  DimFactors n;       ///< of the result's last dimension
};

BlockFactors add_block_factors(Rule& rule, const Node& node, const Expr& block, const std::optional<Expr>& groups,
                               const Expr& together, const Expr& n, int64_t columns_together) {
  const Shape& a = shape_of(node, 0);
  rule = blank_rule(node);
  const Shape outer(a.begin(), a.end() - 1);
  auto dims = add_dims(rule, Shape(outer.begin(), outer.empty() ? outer.end() : outer.end() - 1), "bcdefgh");
  if (!outer.empty()) dims.push_back({rule.add("m", outer.back())});
  BlockFactors factors;
  if (groups) {
    const int k = rule.add("k", *groups, FactorKind::reduction);
    factors.k = factors.blocks = factors.groups = {k};
    if (!together.is(1)) {
      const int pair = rule.add("k_pair", together, FactorKind::whole);
      factors.k.push_back(pair);
      factors.blocks.push_back(pair);
    }
    if (!block.is(1)) factors.k.push_back(rule.add("k_in", block, FactorKind::whole));
  }
  if (columns_together == 1) {
    factors.n = {rule.add("n", n)};
  } else if (const auto pairs = Expr::exact_divide(n, columns_together)) {
    factors.n = {rule.add("n", *pairs), rule.add("n_pair", columns_together, FactorKind::whole)};
  }
  rule.operands[0] = dims;
  rule.operands[0].push_back(factors.k);
  rule.results[0] = dims;
  rule.results[0].push_back(factors.n);
  return factors;
}

int64_t weight_block(const Node& node) {
  const int64_t block = node.get_int("block_size", 0);
  if (block < 16 || (block & (block - 1)) != 0)
    fail_node(node, "its blocks have {}; they must have 16, or a greater power of two", counted(block, "row"));
  return block;
}

const Shape& rows_of_activation(const Node& node) {
  if (shape_of(node, 0).empty()) fail_node(node, "operand 0 is a scalar; it must have rows");
  return shape_of(node, 0);
}

void set_product(Node& node, const Expr& n) {
  Shape shape = rows_of_activation(node);
  shape.back() = n;
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

// com.microsoft's MatMulNBits: codes [n, blocks, bytes of a block], scales [n, blocks], and zero points [n, blocks],
// those of 4 bits two to a byte. Lowering has added its bias, and given dimensions to lists
// (rewrite/lower/quantization.cpp).
int64_t bits_of_node(const Node& node) {
  const int64_t bits = node.get_int("bits", 4);
  if (bits != 4 && bits != 8) fail_node(node, "its codes have {} bits; 4 and 8 are supported", bits);
  return bits;
}

/// Blocks whose zero points share a byte.
int64_t blocks_together(const Node& node) {
  return has_operand(node, 3) && !is_float(operand(node, 3).dtype()) ? 8 / bits_of_node(node) : 1;
}

void require_shape(const Node& node, size_t index, std::string_view what, const Shape& shape) {
  const Shape& has = shape_of(node, index);
  if (has.size() != 2 || !same_extent(has[0], shape[0]) || !same_extent(has[1], shape[1]))
    fail_node(node, "its {} are {} instead of {}", what, to_string(has), to_string(shape));
}

void infer_matmul_nbits(Node& node) {
  const int64_t block = weight_block(node), bits = bits_of_node(node);
  const Shape &a = rows_of_activation(node), &codes = shape_of(node, 1);
  if (has_operand(node, 4)) fail_node(node, "its rows are in another order (g_idx), which is not supported");
  const Expr blocks = ceildiv(a.back(), block);
  if (operand(node, 1).dtype() != DType::uint8 || codes.size() != 3 || !same_extent(codes[1], blocks) ||
      !codes[2].is(block * bits / 8))
    fail_node(node, "its codes are {} {}; for {} columns in blocks of {} they must be uint8 [n, {}, {}]",
              name_of(operand(node, 1).dtype()), to_string(codes), a.back().str(), block, blocks.str(),
              block * bits / 8);
  require_shape(node, 2, "scales", {codes[0], blocks});
  if (has_operand(node, 3)) require_shape(node, 3, "zero points", {codes[0], ceildiv(blocks, blocks_together(node))});
  set_product(node, codes[0]);
}

/// "b m (k k_in), n k 1, n k -> b m n | k: sum".
Rule matmul_nbits_rule(const Node& node) {
  const int64_t block = weight_block(node), together = blocks_together(node);
  const Shape& codes = shape_of(node, 1);
  const auto blocks = Expr::exact_divide(shape_of(node, 0).back(), block);
  // One block has its zero points in bytes of their own.
  const bool alone = codes[1].is(1);
  const auto groups = !blocks || alone ? blocks : Expr::exact_divide(*blocks, together);
  Rule rule;
  const BlockFactors factors = add_block_factors(rule, node, block, groups, alone ? 1 : together, codes[0], 1);
  rule.operands[1] = {factors.n, factors.blocks, {}};
  rule.operands[2] = {factors.n, factors.blocks};
  if (has_operand(node, 3)) rule.operands[3] = {factors.n, together == 1 ? factors.blocks : factors.groups};
  return rule;
}

/// K and N are attributes, and this rank's are others.
std::vector<Value*> localize_matmul_nbits(Localizer& local) {
  const std::vector<Value*> results = local.same();
  Node* node = results[0]->producer;
  const auto state = [&](std::string_view name, const Expr& extent) {
    if (const auto number = extent.constant()) node->set(name, *number);
  };
  state("K", node->input(0)->shape().back());
  state("N", results[0]->shape().back());
  return results;
}

// Our own product with a matrix that DequantizeLinear would make: codes [k, n] with scales and zero points
// [k / block, n]; or, without blocks, one scale and zero point, or one for each of n columns. With transB, the matrix
// lies turned: codes [n, k], scales [n, k / block].
struct CodeMatrix {
  bool turned;
  int64_t block;  // 0: none
  Expr k, n;

  explicit CodeMatrix(const Node& node)
      : turned(node.get_int("transB", 0) != 0),
        block(node.get_int("block_size", 0) == 0 ? 0 : weight_block(node)),
        k(shape_of(node, 1).at(turned ? 1 : 0)),
        n(shape_of(node, 1).at(turned ? 0 : 1)) {}

  /// Rows and columns in the matrix's own order.
  template <typename T>
  std::vector<T> placed(T row, T column) const {
    return turned ? std::vector<T>{column, row} : std::vector<T>{row, column};
  }
};

bool in_half_bytes(const Node& node) {
  return bits_of(operand(node, 1).dtype()) == 4;
}

bool is_one_number(const Node& node, size_t index) {
  return product(shape_of(node, index)).is(1) && shape_of(node, index).size() <= 1;
}

void require_scales(const Node& node, size_t index, std::string_view what, const CodeMatrix& matrix) {
  if (matrix.block > 0)
    return require_shape(node, index, what, matrix.placed(ceildiv(matrix.k, matrix.block), matrix.n));
  const Shape& has = shape_of(node, index);
  if (!is_one_number(node, index) && (has.size() != 1 || !same_extent(has[0], matrix.n)))
    fail_node(node, "its {} are {}; without blocks they must be one number, or a list of {}", what, to_string(has),
              matrix.n.str());
}

void infer_matmul_blocks(Node& node) {
  const Shape& a = rows_of_activation(node);
  require_rank(node, 1, "its matrix of codes", 2);
  const CodeMatrix matrix(node);
  require_equal(node, a.back(), matrix.k, "the left operand's columns", "the codes' rows");
  require_same_dtype(node, {0, 2});
  const DType type = operand(node, 1).dtype();
  const bool has_sign = type == DType::int8 || type == DType::int4;
  if (!has_sign && type != DType::uint8 && type != DType::uint4)
    fail_node(node, "its codes are {}; they must be int8, uint8, int4 or uint4", name_of(type));
  if (has_operand(node, 3) ? operand(node, 3).dtype() != type : !has_sign)
    fail_node(node, "its {} codes need zero points of the same type", name_of(type));
  require_scales(node, 2, "scales", matrix);
  if (has_operand(node, 3)) require_scales(node, 3, "zero points", matrix);
  if (has_operand(node, 3) && is_one_number(node, 2) != is_one_number(node, 3))
    fail_node(node, "its zero points {} and its scales {} must have one shape", to_string(shape_of(node, 3)),
              to_string(shape_of(node, 2)));
  set_product(node, matrix.n);
}

/// "b m (k k_in), (k k_in) n, k n, k n -> b m n | k: sum"; without blocks "b m k, k n, n, n -> b m n | k: sum".
Rule matmul_blocks_rule(const Node& node) {
  const CodeMatrix matrix(node);
  const bool pairs = in_half_bytes(node);
  const int64_t together = pairs && matrix.block == 0 && matrix.turned ? 2 : 1,
                unit = std::max<int64_t>(matrix.block, 1);
  Rule rule;
  const BlockFactors factors = add_block_factors(rule, node, unit, Expr::exact_divide(matrix.k, unit * together),
                                                 together, matrix.n, pairs && !matrix.turned ? 2 : 1);
  rule.operands[1] = matrix.placed(factors.k, factors.n);
  for (const size_t index : {2, 3}) {
    if (!has_operand(node, index)) continue;
    if (matrix.block > 0)
      rule.operands[index] = matrix.placed(factors.blocks, factors.n);
    else if (!is_one_number(node, index))
      rule.operands[index] = {factors.n};
  }
  return rule;
}

std::vector<Value*> matmul_blocks_body(NodeBuilder& b, const Node& node) {
  const CodeMatrix matrix(node);
  const bool blocks = matrix.block > 0;
  std::vector<Attribute> attributes = {{"axis", int64_t{blocks == matrix.turned}, {}}};
  if (blocks) attributes.push_back({"block_size", matrix.block, {}});
  Value* codes = b.emit("DequantizeLinear", {node.input(1), node.input(2), node.input(3)}, std::move(attributes));
  return {b.emit("MatMul", {node.input(0), matrix.turned ? b.turn(codes) : codes})};
}

Expr block_flops(const Node& node) {
  return 2 * product(node.output()->shape()) * shape_of(node, 0).back();
}

}  // namespace

std::vector<OpDef> quantized_ops() {
  return {
      {.type = "MatMulNBits",
       .domain = "com.microsoft",
       .infer = infer_matmul_nbits,
       .rule = matmul_nbits_rule,
       .flops = block_flops,
       .localize = localize_matmul_nbits,
       .no_gradient = "its weights are codes",
       .examples = matmul_nbits_examples},
      {.type = "MatMulBlocks",
       .domain = "tessera",
       .infer = infer_matmul_blocks,
       .rule = matmul_blocks_rule,
       .flops = block_flops,
       .no_gradient = "its weights are codes",
       .body = matmul_blocks_body,
       .examples = matmul_blocks_examples},
      {.type = "MatMulInteger",
       .infer = infer_matmul_integer,
       .rule = matmul_integer_rule,
       .flops = matmul_flops,
       .no_gradient = "its operands are integers",
       .examples = matmul_integer_examples},
  };
}

}  // namespace tessera::ops
