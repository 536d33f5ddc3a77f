#include "tessera/ir/exact_cast.h"

#include <cmath>
#include <type_traits>
#include <utility>

#include "tessera/base/float16.h"

namespace tessera {
namespace {

enum class Boolean : uint8_t { no, yes };

template <typename T>
constexpr bool kIsNarrow = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// An element as a number that the language computes with.
template <typename T>
auto number(T element) {
  if constexpr (std::is_same_v<T, Boolean>)
    return static_cast<uint8_t>(element != Boolean::no);
  else if constexpr (kIsNarrow<T>)
    return static_cast<float>(element);
  else
    return element;
}

template <typename To, typename From>
bool cast(From from, To& to) {
  constexpr bool kFromFloat = std::is_floating_point_v<From>;
  if constexpr (std::is_same_v<To, Boolean> && !kFromFloat) {
    to = from == 0 ? Boolean::no : Boolean::yes;
    return from == 0 || from == 1;
  } else if constexpr (std::is_integral_v<To> && !kFromFloat) {
    to = static_cast<To>(from);
    return std::in_range<To>(from);
  } else if constexpr ((std::is_floating_point_v<To> || kIsNarrow<To>)&&kFromFloat) {
    to = static_cast<To>(static_cast<std::conditional_t<kIsNarrow<To>, float, From>>(from));
    return static_cast<From>(number(to)) == from || std::isnan(from);
  } else {
    return false;
  }
}

// Calls `use` with a value of the type's class; false for other types.
template <typename Use>
bool with_class_of(DType dtype, Use use) {
  switch (dtype) {
    case DType::boolean:
      return use(Boolean::no);
    case DType::int8:
      return use(int8_t{});
    case DType::int16:
      return use(int16_t{});
    case DType::int32:
      return use(int32_t{});
    case DType::int64:
      return use(int64_t{});
    case DType::uint8:
      return use(uint8_t{});
    case DType::uint16:
      return use(uint16_t{});
    case DType::uint32:
      return use(uint32_t{});
    case DType::uint64:
      return use(uint64_t{});
    case DType::float16:
      return use(Float16{});
    case DType::bfloat16:
      return use(BFloat16{});
    case DType::float32:
      return use(float{});
    case DType::float64:
      return use(double{});
    default:
      return false;
  }
}

}  // namespace

std::optional<Tensor> exactly_as(const Tensor& tensor, DType to) {
  if (tensor.dtype == to) return tensor;
  tensor.require_whole("");
  Tensor made;
  const bool exact = with_class_of(tensor.dtype, [&]<typename From>(From) {
    return with_class_of(to, [&]<typename To>(To) {
      made = Tensor::uninitialized(to, tensor.dims);
      auto* elements = reinterpret_cast<To*>(made.mutable_data());
      for (const From& element : tensor.as<From>())
        if (!cast(number(element), *elements++)) return false;
      return true;
    });
  });
  return exact ? std::optional(std::move(made)) : std::nullopt;
}

}  // namespace tessera
