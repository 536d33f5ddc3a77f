#include "tessera/ops/matmul.h"

#include <cmath>

#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

// A MatMul's extents by role. A 1-D left operand has no m, a 1-D right one no n.
struct MatMulDims {
  Shape batch;  ///< broadcast
  std::optional<Expr> m, n;
  Expr k;
};

Shape without_last(const Shape& shape, size_t count) {
  return shape.size() > count ? Shape(shape.begin(), shape.end() - static_cast<ptrdiff_t>(count)) : Shape{};
}

MatMulDims matmul_dims(const Node& node) {
  const Shape &a = shape_of(node, 0), &b = shape_of(node, 1);
  if (a.empty() || b.empty())
    fail_node(node, "a scalar cannot be multiplied as a matrix ({} by {}); use Mul", to_string(a), to_string(b));
  MatMulDims dims;
  if (a.size() > 1) dims.m = a[a.size() - 2];
  if (b.size() > 1) dims.n = b.back();
  const Expr& rows = b.size() > 1 ? b[b.size() - 2] : b.back();
  dims.k = require_equal(node, a.back(), rows, "the left operand's columns", "the right operand's rows");
  Shape left = without_last(a, 2), right = without_last(b, 2);
  dims.batch = broadcast(node, {&left, &right});
  return dims;
}

}  // namespace

Shape matmul_shape(const Node& node) {
  MatMulDims dims = matmul_dims(node);
  Shape shape = dims.batch;
  if (dims.m) shape.push_back(*dims.m);
  if (dims.n) shape.push_back(*dims.n);
  return shape;
}

Rule matmul_factors(const Node& node) {
  const Shape &a = node.input(0)->shape(), &b = node.input(1)->shape();
  MatMulDims dims = matmul_dims(node);
  Rule rule = blank_rule(node);
  auto batch = add_dims(rule, dims.batch, "bcdefgh");
  auto append = [](std::vector<DimFactors>& to, int factor) { to.push_back({factor}); };
  rule.operands[0] = broadcast_dims(without_last(a, 2), dims.batch, batch);
  rule.operands[1] = broadcast_dims(without_last(b, 2), dims.batch, batch);
  rule.results[0] = batch;
  int m = dims.m ? rule.add("m", *dims.m) : -1;
  int k = rule.add("k", dims.k, FactorKind::reduction);
  int n = dims.n ? rule.add("n", *dims.n) : -1;
  if (dims.m) append(rule.operands[0], m), append(rule.results[0], m);
  append(rule.operands[0], k);
  append(rule.operands[1], k);
  if (dims.n) append(rule.operands[1], n), append(rule.results[0], n);
  return rule;
}

Expr matmul_flops(const Node& node) {
  MatMulDims dims = matmul_dims(node);
  return 2 * product(dims.batch) * dims.m.value_or(1) * dims.n.value_or(1) * dims.k;
}

namespace {

void infer_matmul(Node& node) {
  const DType dtype = require_same_dtype(node, {0, 1});
  set_result(node, 0, sum_dtype(node, dtype), matmul_shape(node));
}

Rule matmul_rule(const Node& node) {
  return matmul_factors(node).partial(Reduction::sum, {0}, {1}).partial(Reduction::sum, {1}, {0});
}

// Gemm: alpha·A'·B' + beta·C, with A' [m, k] and B' [k, n].
struct GemmDims {
  Expr m, n, k;
};

GemmDims gemm_dims(const Node& node) {
  const Shape &a = require_rank(node, 0, "A", 2), &b = require_rank(node, 1, "B", 2);
  bool across = node.get_int("transA", 0) != 0, down = node.get_int("transB", 0) != 0;
  return {a[across], b[!down],
          require_equal(node, a[!across], b[down], across ? "the rows of A" : "the columns of A",
                        down ? "the columns of B" : "the rows of B")};
}

void infer_gemm(Node& node) {
  GemmDims dims = gemm_dims(node);
  DType dtype = require_same_dtype(node, {0, 1, 2});
  Shape shape{dims.m, dims.n};
  if (node.input(2)) require_broadcast_to(node, 2, "C", shape);
  set_result(node, 0, sum_dtype(node, dtype), std::move(shape));
}

Rule gemm_rule(const Node& node) {
  GemmDims dims = gemm_dims(node);
  const Value* added = node.input(2);
  Rule rule = blank_rule(node);
  int m = rule.add("m", dims.m);
  int k = rule.add("k", dims.k, FactorKind::reduction);
  int n = rule.add("n", dims.n);
  rule.operands[0] = {{m}, {k}};
  rule.operands[1] = {{k}, {n}};
  if (node.get_int("transA", 0)) std::swap(rule.operands[0][0], rule.operands[0][1]);
  if (node.get_int("transB", 0)) std::swap(rule.operands[1][0], rule.operands[1][1]);
  rule.results[0] = {{m}, {n}};
  if (added) rule.operands[2] = broadcast_dims(added->shape(), {dims.m, dims.n}, rule.results[0]);
  // A factor that is not finite makes NaN of a sum that is zero on one rank.
  if (!std::isfinite(node.get_float("alpha", 1)) || !std::isfinite(node.get_float("beta", 1)))
    return rule.kind("k", FactorKind::whole);
  if (!added) return rule.partial(Reduction::sum, {0}, {1}).partial(Reduction::sum, {1}, {0});
  return rule.partial(Reduction::sum, {0, 2}, {1}).partial(Reduction::sum, {1, 2}, {0});
}

std::vector<Value*> localize_gemm(Localizer& local) {
  int k = local.factor("k");
  if (local.split[k] && local.node.input(2)) local.inputs[2] = local.on_first_shard(local.inputs[2], k);
  return local.same();
}

Expr gemm_flops(const Node& node) {
  GemmDims dims = gemm_dims(node);
  return 2 * dims.m * dims.n * dims.k;
}

}  // namespace

std::vector<OpDef> matmul_ops() {
  constexpr size_t kMatrix = 2;  // dimensions
  return {
      {.type = "MatMul",
       .infer = infer_matmul,
       .rule = matmul_rule,
       .flops = matmul_flops,
       .gradient = matmul_gradient,
       .wide_sums = true,
       .fixed_dims = kMatrix,
       .examples = matmul_examples},
      {.type = "MatMul",
       .domain = "tessera",
       .infer = infer_matmul,
       .rule = matmul_rule,
       .flops = matmul_flops,
       .no_gradient = kMadeByPartitioner,
       .fixed_dims = kMatrix,
       .examples = wide_matmul_examples},
      {.type = "Gemm",
       .infer = infer_gemm,
       .rule = gemm_rule,
       .flops = gemm_flops,
       .localize = localize_gemm,
       .gradient = gemm_gradient,
       .wide_sums = true,
       .broadcast_one_way = {2},
       .examples = gemm_examples},
      {.type = "Gemm",
       .domain = "tessera",
       .infer = infer_gemm,
       .rule = gemm_rule,
       .flops = gemm_flops,
       .localize = localize_gemm,
       .no_gradient = kMadeByPartitioner,
       .broadcast_one_way = {2},
       .examples = wide_gemm_examples},
  };
}

}  // namespace tessera::ops
