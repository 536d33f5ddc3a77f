#include "tessera/rewrite/canonical/short_lists.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

struct ShortList {
  DType dtype = DType::undefined;
  Dims dims;
  std::vector<double> elements;
};

bool is_computable(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::int64 || dtype == DType::int32 ||
         dtype == DType::boolean || dtype == DType::bfloat16 || dtype == DType::float16;
}

std::optional<ShortList> short_list(const Value* value) {
  if (!value || value->kind != ValueKind::constant || bits_of(value->dtype()) < 8) return std::nullopt;
  const Tensor& data = value->data;
  if ((data.dims.size() > 1 && data.count() != 1) || data.count() > ops::kMaxContent) return std::nullopt;
  ShortList list{data.dtype, data.dims, {}};
  const size_t bytes = bits_of(data.dtype) / 8;
  for (int64_t i = 0; i < data.count(); ++i) {
    const auto element = scalar_of(Tensor::copy_of(data.dtype, {}, data.data + static_cast<size_t>(i) * bytes, bytes));
    if (!element) return std::nullopt;
    list.elements.push_back(*element);
  }
  return list;
}

/// In the type's precision.
Value* constant_of(Graph& graph, const Node& node, const ShortList& list) {
  Tensor data = Tensor::uninitialized(list.dtype, list.dims);
  const size_t bytes = bits_of(list.dtype) / 8;
  for (size_t i = 0; i < list.elements.size(); ++i) {
    Value* element = graph.constant_scalar(list.dtype, list.elements[i]);
    std::memcpy(data.mutable_data() + i * bytes, element->data.data, bytes);
    graph.erase(element);
  }
  return graph.add_constant(node.outputs[0]->name + "_value", std::move(data));
}

std::optional<double> evaluated(const std::string& type, double x) {
  if (type == "Sqrt") return std::sqrt(x);
  if (type == "Neg") return -x;
  if (type == "Abs") return std::abs(x);
  if (type == "Reciprocal") return 1 / x;
  if (type == "Exp") return std::exp(x);
  if (type == "Log") return std::log(x);
  if (type == "Floor") return std::floor(x);
  if (type == "Ceil") return std::ceil(x);
  if (type == "Round") return std::nearbyint(x);  // halves to even
  if (type == "Relu") return x < 0 ? 0 : x;
  return std::nullopt;
}

std::optional<double> evaluated(const std::string& type, double x, double y) {
  if (type == "Add") return x + y;
  if (type == "Sub") return x - y;
  if (type == "Mul") return x * y;
  if (type == "Div") return x / y;
  if (type == "Pow") return std::pow(x, y);
  if (type == "Min" || type == "Max") {
    if (std::isnan(x) || std::isnan(y)) return x + y;
    return type == "Min" ? std::min(x, y) : std::max(x, y);
  }
  return std::nullopt;
}

std::optional<ShortList> cast(const Node& node, ShortList list) {
  const DType to = node.is("Cast") ? static_cast<DType>(node.get_int("to", 0))
                   : node.input(1) ? node.input(1)->dtype()
                                   : DType::undefined;
  if (!is_computable(to)) return std::nullopt;
  list.dtype = to;
  for (double& element : list.elements) {
    if (to == DType::boolean) {
      element = element != 0;
    } else if (!is_float(to)) {
      if (!(std::abs(element) <= (to == DType::int32 ? 2147483647.0 : 9e15))) return std::nullopt;
      element = std::trunc(element);
    }
  }
  return list;
}

/// Element by element; an operand with one element is combined with each element of the other.
std::optional<ShortList> combined(const std::string& type, const ShortList& a, const ShortList& b) {
  const size_t count = a.elements.size() == 1 ? b.elements.size() : a.elements.size();
  if (b.elements.size() != 1 && b.elements.size() != count) return std::nullopt;
  ShortList result{a.dtype, a.dims.size() < b.dims.size() ? b.dims : a.dims, {}};
  if (!result.dims.empty()) result.dims.back() = static_cast<int64_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const auto element =
        evaluated(type, a.elements[a.elements.size() == 1 ? 0 : i], b.elements[b.elements.size() == 1 ? 0 : i]);
    if (!element) return std::nullopt;
    result.elements.push_back(*element);
  }
  return result;
}

std::optional<ShortList> computed(const std::string& type, const std::vector<ShortList>& operands) {
  ShortList result = operands.front();
  if (operands.size() == 1 && type != "Min" && type != "Max") {
    for (double& element : result.elements) {
      const auto value = evaluated(type, element);
      if (!value) return std::nullopt;
      element = *value;
    }
    return result;
  }
  for (size_t i = 1; i < operands.size(); ++i) {
    const auto next = combined(type, result, operands[i]);
    if (!next) return std::nullopt;
    result = *next;
  }
  return result;
}

/// Combines a list's elements to one.
std::optional<ShortList> reduced(const Node& node, const ShortList& list) {
  const auto axes = node.input(1) ? numbers(node.input(1)) : std::vector<int64_t>{};
  if (list.dims.size() != 1 || list.elements.empty() || !axes || axes->size() > 1) return std::nullopt;
  if (axes->empty() && node.get_int("noop_with_empty_axes", 0) != 0) return std::nullopt;
  const std::string type = node.is("ReduceMax")   ? "Max"
                           : node.is("ReduceMin") ? "Min"
                           : node.is("ReduceSum") ? "Add"
                                                  : "Mul";
  ShortList result{list.dtype, node.get_int("keepdims", 1) != 0 ? Dims{1} : Dims{}, {list.elements.front()}};
  for (size_t i = 1; i < list.elements.size(); ++i)
    result.elements.front() = *evaluated(type, result.elements.front(), list.elements[i]);
  return result;
}

std::optional<ShortList> joined(const std::vector<ShortList>& operands) {
  ShortList result{operands.front().dtype, {0}, {}};
  for (const ShortList& operand : operands) {
    if (operand.dims.size() != 1) return std::nullopt;
    result.elements.insert(result.elements.end(), operand.elements.begin(), operand.elements.end());
  }
  const auto count = static_cast<int64_t>(result.elements.size());
  if (count > ops::kMaxContent) return std::nullopt;
  result.dims = {count};
  return result;
}

/// A scalar as a list of one, and back; a list as the same list.
std::optional<ShortList> reshaped_list(const Node& node, ShortList list) {
  const auto given = numbers(node.input(1));
  const size_t rank = list.dims.size();
  if (node.is("Unsqueeze") && rank == 0 && given && given->size() == 1)
    list.dims = {1};
  else if (node.is("Squeeze") && rank == 1 && list.elements.size() == 1)
    list.dims = {};
  else if (node.is("Reshape") && rank <= 1 && given && given->size() <= 1 && !list.elements.empty())
    list.dims = given->empty() ? Dims{} : Dims{static_cast<int64_t>(list.elements.size())};
  else
    return std::nullopt;
  return list;
}

std::optional<ShortList> made_by_node(const Node& node) {
  const auto first = short_list(node.input(0));
  if (!first) return std::nullopt;
  if (node.is("Cast") || node.is("CastLike")) return cast(node, *first);
  if (!is_float(first->dtype) || !is_computable(first->dtype)) return std::nullopt;
  // Without elements, the result is not defined here.
  if (first->elements.empty() && !node.is("Concat")) return std::nullopt;
  if (node.is("Unsqueeze") || node.is("Squeeze") || node.is("Reshape")) return reshaped_list(node, *first);
  for (const char* type : {"ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"})
    if (node.is(type)) return reduced(node, *first);
  std::vector<ShortList> operands;
  for (const Value* operand : node.inputs) {
    auto list = short_list(operand);
    if (!list || list->dtype != first->dtype || (list->elements.empty() && !node.is("Concat"))) return std::nullopt;
    operands.push_back(std::move(*list));
  }
  return node.is("Concat") ? joined(operands) : computed(node.op_type, operands);
}

}  // namespace

Value* fold_short_lists(Graph& graph, const Node& node) {
  if (!node.domain.empty() || node.inputs.empty() || node.outputs.size() != 1 || !node.outputs[0]) return nullptr;
  const auto list = made_by_node(node);
  return list ? constant_of(graph, node, *list) : nullptr;
}

}  // namespace tessera::rewrite
