#include "tessera/rewrite/scalar.h"

#include <cmath>
#include <optional>

#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

bool is_computable(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::int64 || dtype == DType::int32 ||
         dtype == DType::boolean || dtype == DType::bfloat16 || dtype == DType::float16;
}

/// A single element computed from single elements, in the result's precision; nullopt if it is not folded.
std::optional<double> evaluate_scalar(const Node& node, const std::vector<double>& x) {
  const std::string& type = node.op_type;
  if (x.size() == 1) {
    if (type == "Sqrt") return std::sqrt(x[0]);
    if (type == "Neg") return -x[0];
    if (type == "Reciprocal") return 1 / x[0];
    if (type == "Exp") return std::exp(x[0]);
    if (type == "Log") return std::log(x[0]);
    if (type == "Floor") return std::floor(x[0]);
    if (type == "Ceil") return std::ceil(x[0]);
    if (type == "Relu") return x[0] < 0 ? 0 : x[0];
  }
  if (x.size() == 2) {
    if (type == "Add") return x[0] + x[1];
    if (type == "Sub") return x[0] - x[1];
    if (type == "Mul") return x[0] * x[1];
    if (type == "Div") return x[0] / x[1];
    if (type == "Pow") return std::pow(x[0], x[1]);
  }
  return std::nullopt;
}

Value* constant_like(Graph& graph, const Node& node, DType dtype, double value, const Dims& dims) {
  Value* constant = graph.constant_scalar(dtype, value);
  constant->data.dims = dims;
  constant->type.shape = Shape(dims.begin(), dims.end());
  graph.rename(constant, node.outputs[0]->name + "_value");
  return constant;
}

}  // namespace

Value* fold_scalar(Graph& graph, const Node& node) {
  if (!node.domain.empty() || node.inputs.empty() || node.outputs.size() != 1) return nullptr;
  const Value* first = node.inputs[0];
  if (node.op_type == "Cast" || node.op_type == "CastLike") {
    auto value = scalar_of(first);
    DType dtype = node.op_type == "Cast" ? static_cast<DType>(node.get_int("to", 0))
                  : node.input(1)        ? node.input(1)->dtype()
                                         : DType::undefined;
    if (!value || !is_computable(dtype)) return nullptr;
    if (dtype == DType::boolean) return constant_like(graph, node, dtype, *value != 0, first->data.dims);
    if (!is_float(dtype) && !(std::abs(*value) <= 9e15)) return nullptr;
    if (dtype == DType::int32 && std::abs(*value) > 2147483647) return nullptr;
    return constant_like(graph, node, dtype, is_float(dtype) ? *value : std::trunc(*value), first->data.dims);
  }
  std::vector<double> elements;
  for (const Value* operand : node.inputs) {
    auto value = scalar_of(operand);
    if (!value || !is_float(operand->dtype()) || operand->dtype() != first->dtype() ||
        operand->data.dims != first->data.dims)
      return nullptr;
    elements.push_back(*value);
  }
  if (!is_computable(first->dtype())) return nullptr;
  auto result = evaluate_scalar(node, elements);
  return result ? constant_like(graph, node, first->dtype(), *result, first->data.dims) : nullptr;
}

}  // namespace tessera::rewrite
