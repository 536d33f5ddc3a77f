#include "tessera/ir/text_tensor.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tessera/base/counted.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/pages.h"

namespace tessera::text {
namespace {

template <typename T>
std::string print_floating(T value) {
  std::string text = fmt::format("{}", value);
  return is_floating_literal(text) ? text : text + ".0";
}

template <typename T>
std::string join(const Tensor& stored) {
  const Tensor tensor = aligned(stored);
  std::string text;
  for (T element : tensor.as<T>()) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_floating_point_v<T>)
      text += print_floating(element);
    else
      text += std::to_string(element);
  }
  return text;
}

// Round to nearest, ties to even, of a float32 to a format of `exponent` and `mantissa` bits.
uint16_t to_16_bits(float value, int exponent_bits, int mantissa_bits) {
  const int largest = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1 << (mantissa_bits - 1));
  if (std::isinf(value)) return sign | infinity;
  double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return sign;
  int exponent = std::max(std::ilogb(magnitude), 1 - largest);
  auto units = static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  // A mantissa that rounds up to the next power carries into the exponent.
  int64_t bits = (static_cast<int64_t>(exponent + largest - 1) << mantissa_bits) + units;
  return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::min<int64_t>(bits, infinity)));
}

struct Literal {
  std::string_view text;
  size_t at;
};

template <typename T>
T parse_number(const Scanner& scanner, const Literal& literal, DType dtype) {
  std::string_view digits = literal.text.substr(literal.text[0] == '+' ? 1 : 0);
  T value{};
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size())
    scanner.fail_at(literal.at, fmt::format("'{}' is not of type {}", literal.text, name_of(dtype)));
  return value;
}

template <typename T>
void store(std::byte* target, int64_t index, T value) {
  std::memcpy(target + static_cast<size_t>(index) * sizeof(T), &value, sizeof(T));
}

template <typename T>
void store_number(const Scanner& scanner, const Literal& literal, DType dtype, std::byte* target, int64_t index) {
  store(target, index, parse_number<T>(scanner, literal, dtype));
}

void store_16_bits(const Scanner& scanner, const Literal& literal, DType dtype, std::byte* target, int64_t index) {
  if (!is_floating_literal(literal.text)) return store_number<uint16_t>(scanner, literal, dtype, target, index);
  float value = parse_number<float>(scanner, literal, dtype);
  store(target, index, dtype == DType::float16 ? to_16_bits(value, 5, 10) : to_16_bits(value, 8, 7));
}

using Store = void (*)(const Scanner&, const Literal&, DType, std::byte*, int64_t);

Store store_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return store_number<float>;
    case DType::float64:
      return store_number<double>;
    case DType::float16:
    case DType::bfloat16:
      return store_16_bits;
    case DType::int64:
      return store_number<int64_t>;
    case DType::int32:
      return store_number<int32_t>;
    case DType::int16:
      return store_number<int16_t>;
    case DType::int8:
      return store_number<int8_t>;
    case DType::uint64:
      return store_number<uint64_t>;
    case DType::uint32:
      return store_number<uint32_t>;
    case DType::uint16:
      return store_number<uint16_t>;
    case DType::uint8:
    case DType::boolean:
      return store_number<uint8_t>;
    default:
      return nullptr;
  }
}

}  // namespace

std::string print_float(float value) {
  return print_floating(value);
}

bool has_literals(DType dtype) {
  return store_of(dtype) != nullptr;
}

std::string print_elements(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::float32:
      return "{" + join<float>(tensor) + "}";
    case DType::float64:
      return "{" + join<double>(tensor) + "}";
    case DType::float16:
    case DType::bfloat16:
      return "{" + join<uint16_t>(tensor) + "}";
    case DType::uint64:
      return "{" + join<uint64_t>(tensor) + "}";
    default: {
      std::string text;
      for (int64_t element : tensor.to_int64()) text += (text.empty() ? "" : ", ") + std::to_string(element);
      return "{" + text + "}";
    }
  }
}

Tensor zeros_at(const Scanner& scanner, size_t at, DType dtype, const Dims& dims, std::string_view what) {
  int64_t bits = std::max(bits_of(dtype), 1);
  bool fits = true;
  for (int64_t extent : dims) {
    if (extent < 0) scanner.fail_at(at, fmt::format("{} has a negative extent {}", what, extent));
    fits = fits && !__builtin_mul_overflow(bits, std::max<int64_t>(extent, 1), &bits);
  }
  constexpr size_t kBitsPerByte = 8;
  if (!fits || static_cast<size_t>(bits) / kBitsPerByte > machine_memory())
    scanner.fail_at(at, fmt::format("{} is larger than this machine's memory", what));
  return Tensor::zeros(dtype, dims);
}

Tensor parse_elements(Scanner& scanner, DType dtype, const Dims& dims, std::string_view what) {
  size_t start = scanner.position();
  scanner.expect("{");
  Tensor tensor = zeros_at(scanner, start, dtype, dims, what);
  if (scanner.take("...")) {
    scanner.expect("}");
    return tensor;
  }
  Store store_element = store_of(dtype);
  if (!store_element)
    scanner.fail_at(start, fmt::format("elements of type {} cannot be written in text; declare {} by its type only",
                                       name_of(dtype), what));
  int64_t count = tensor.count(), read = 0;
  std::byte* target = tensor.mutable_data();
  while (!scanner.take("}")) {
    size_t at = scanner.position();
    std::string_view literal;
    if (std::string_view word = scanner.peek_identifier(); dtype == DType::boolean && !word.empty()) {
      if (word != "true" && word != "false") scanner.expected("true or false");
      literal = word == "true" ? "1" : "0";
      scanner.identifier("true or false");
    } else {
      literal = scanner.number(fmt::format("an element of type {} or '}}'", name_of(dtype)));
    }
    if (read < count) store_element(scanner, {literal, at}, dtype, target, read);
    ++read;
    if (!scanner.take(",") && scanner.peek() != '}') scanner.expected("',' or '}'");
  }
  if (read != count)
    scanner.fail_at(start, fmt::format("{} for {}, which has {}", counted(read, "element"), what, count));
  return tensor;
}

}  // namespace tessera::text
