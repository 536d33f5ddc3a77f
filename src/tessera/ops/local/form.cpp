#include "tessera/ops/local/form.h"

#include <algorithm>

#include "tessera/ops/library/infer.h"

namespace tessera::ops {
namespace {

std::string prefix_of(const Node& node) {
  for (const Value* result : node.outputs)
    if (result) return result->name;
  return node.op_type;
}

}  // namespace

SplitForm::SplitForm(Localizer& localizer, std::vector<size_t> combined)
    : NodeBuilder(localizer.graph, prefix_of(localizer.node)), local(localizer), dims(std::move(combined)) {
  for (size_t d : dims)
    for (int factor : local.rule.operands[0][d])
      if (traits_of(local.rule.factors[factor].kind).communicates()) factors.push_back(factor);
}

bool SplitForm::is_split() const {
  return std::any_of(factors.begin(), factors.end(), [&](int factor) { return local.split[factor]; });
}

DType SplitForm::wide(DType dtype) {
  return is_float(dtype) && bits_of(dtype) == 16 ? DType::float32 : dtype;
}

Value* SplitForm::count(DType dtype, int64_t groups) {
  Expr all = 1;
  for (size_t d : dims) all = all * local.node.input(0)->shape()[d];
  return scalar(dtype, *Expr::exact_divide(all, groups));
}

Value* SplitForm::axes() {
  return graph.constant_int64(std::vector<int64_t>(dims.begin(), dims.end()));
}

Value* SplitForm::reduced(std::string_view op_type, Value* value, Reduction reduction, std::string_view name,
                          bool keep) {
  Value* part = emit(op_type, {value, axes()}, {{"keepdims", int64_t{keep}}});
  return is_split() ? local.reduce(part, factors, reduction, name) : part;
}

size_t axis_along(const Node& node, int64_t otherwise) {
  return normalize_axis(node, node.get_int("axis", otherwise), node.input(0)->rank());
}

}  // namespace tessera::ops
