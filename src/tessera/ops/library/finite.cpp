#include "tessera/ops/library/finite.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/float16.h"
#include "tessera/ir/aligned.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"

namespace tessera::ops {
namespace {

template <typename T>
double wide(T element) {
  return static_cast<float>(element);
}
template <>
double wide(double element) {
  return element;
}

// Calls visit(elements) with a span of the tensor's elements; false if these are not floats that are known here.
template <typename Visit>
bool visit_floats(const Tensor& stored, Visit visit) {
  const Tensor tensor = aligned(stored);
  switch (tensor.dtype) {
    case DType::float32:
      return visit(tensor.as<float>());
    case DType::float64:
      return visit(tensor.as<double>());
    case DType::float16:
      return visit(tensor.as<Float16>());
    case DType::bfloat16:
      return visit(tensor.as<BFloat16>());
    default:
      return false;
  }
}

bool holds_data(const Value& value) {
  return value.is_fixed() && value.data.data != nullptr;
}

// The value whose elements this one has, uncast; null: it is computed.
const Value* moved_from(const Value& value) {
  const Node* node = value.producer;
  if (!node || moves_of(*node) < Moves::part || node->input(0)->dtype() != value.dtype()) return nullptr;
  return node->input(0);
}

}  // namespace

bool is_positive_number(const Value* value) {
  if (!value) return false;
  if (value->kind == ValueKind::constant && value->data.count() == 1)
    return visit_floats(value->data, [](auto elements) {
      const double number = wide(elements[0]);
      return std::isfinite(number) && number > 0;
    });
  const Node* cast = value->producer;
  // Every count is finite in these types alone.
  if (!cast || !cast->is("Cast") || (value->dtype() != DType::float32 && value->dtype() != DType::float64))
    return false;
  const auto count = content_of(cast->input(0));
  return count && count->size() == 1 && least(count->front()).value_or(0) >= 1;
}

bool are_finite(const Value* value) {
  if (!value) return true;
  if (is_integer(value->dtype()) || value->dtype() == DType::boolean) return true;
  if (const Value* from = moved_from(*value)) return are_finite(from);
  return holds_data(*value) && visit_floats(value->data, [](auto elements) {
           return std::all_of(elements.begin(), elements.end(),
                              [](auto element) { return std::isfinite(wide(element)); });
         });
}

bool are_zeros(const Value* value) {
  if (!value || !(is_float(value->dtype()) || is_integer(value->dtype()))) return false;
  if (const Value* from = moved_from(*value)) return are_zeros(from);
  const auto all_zero = [](const Tensor& tensor) {
    return std::all_of(tensor.data, tensor.data + tensor.bytes, [](std::byte byte) { return byte == std::byte{0}; });
  };
  const Node* node = value->producer;
  if (node && node->is("ConstantOfShape")) {
    const auto* filling = node->get<Tensor>("value");
    return !filling || all_zero(*filling);
  }
  return holds_data(*value) && all_zero(value->data);
}

}  // namespace tessera::ops
