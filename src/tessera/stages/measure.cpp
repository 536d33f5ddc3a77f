#include "tessera/stages/measure.h"

#include <algorithm>

#include "tessera/ops/op.h"

namespace tessera::stages {

bool is_counted(const Node& node) {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  return op ? op->flops && !op->elementwise : !node.domain.empty();
}

double Measure::number(const Expr& expression) const {
  if (const auto constant = expression.constant()) return static_cast<double>(*constant);
  constexpr int64_t kUnknown = 16;
  return static_cast<double>(expression.evaluate([&](std::string_view symbol) -> std::optional<int64_t> {
    const auto found = sizes_.find(symbol);
    return found == sizes_.end() ? kUnknown : found->second;
  }));
}

double Measure::elements(const Value& value) const {
  if (!value.has_shape()) return static_cast<double>(value.data.data ? value.data.count() : 0);
  double count = 1;
  for (const Expr& extent : value.shape()) count *= std::max(0.0, number(extent));
  return count;
}

double Measure::bytes(const Value& value) const {
  if (!value.has_shape() && !value.data.data) return 1;  // then the fewest values are the fewest bytes
  const DType dtype = value.dtype() == DType::undefined ? value.data.dtype : value.dtype();
  return dtype == DType::undefined || dtype == DType::string ? 0 : elements(value) * bits_of(dtype) / 8;
}

bool Measure::is_scalar(const Value& value) const {
  return value.has_shape() && std::all_of(value.shape().begin(), value.shape().end(),
                                          [](const Expr& extent) { return extent.is(1) || extent.is(0); });
}

double Measure::seconds(const Node& node) const {
  return seconds_ ? seconds_(node) : roofline(node);
}

double Measure::roofline(const Node& node) const {
  constexpr double kFlops = 1e12, kBytes = 2e11;
  double moved = 0;
  bool typed = true;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    typed = typed && node.inputs[i]->has_shape();
    if (ops::reads_elements(node, i)) moved += bytes(*node.inputs[i]);
  }
  double made = 0;
  for (const Value* result : node.outputs) {
    if (!result) continue;
    typed = typed && result->has_shape();
    made += bytes(*result);
  }
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (op && op->table) moved = std::min(moved, made);  // the rows that it looks up
  const double flops = typed ? number(ops::flops_of(node)) : 0;
  return std::max(flops / kFlops, (moved + made) / kBytes);
}

}  // namespace tessera::stages
