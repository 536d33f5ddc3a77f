#include "property/subject.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/ops/op.h"

namespace tessera::property {
namespace {

template <typename T>
Tensor converted(DType dtype, const Dims& dims, const std::vector<double>& values) {
  std::vector<T> elements;
  for (double value : values) elements.push_back(static_cast<T>(value));
  return Tensor::of(dtype, dims, elements);
}

template <typename T>
Tensor rounded(DType dtype, const Dims& dims, const std::vector<double>& values) {
  std::vector<uint16_t> bits;
  for (double value : values) bits.push_back(T(static_cast<float>(value)).bits);
  return Tensor::of(dtype, dims, bits);
}

Tensor tensor_of(DType dtype, const Dims& dims, std::vector<double> values) {
  bool is_unsigned = name_of(dtype).starts_with("uint");
  if (is_unsigned)
    for (double& value : values) value = std::abs(value);
  switch (dtype) {
    case DType::float32:
      return converted<float>(dtype, dims, values);
    case DType::float64:
      return converted<double>(dtype, dims, values);
    case DType::float16:
      return rounded<Float16>(dtype, dims, values);
    case DType::bfloat16:
      return rounded<BFloat16>(dtype, dims, values);
    case DType::int8:
      return converted<int8_t>(dtype, dims, values);
    case DType::uint8:
      return converted<uint8_t>(dtype, dims, values);
    case DType::int16:
      return converted<int16_t>(dtype, dims, values);
    case DType::int32:
      return converted<int32_t>(dtype, dims, values);
    case DType::uint32:
      return converted<uint32_t>(dtype, dims, values);
    case DType::int64:
      return converted<int64_t>(dtype, dims, values);
    case DType::uint64:
      return converted<uint64_t>(dtype, dims, values);
    case DType::boolean:
      for (double& value : values) value = std::fmod(std::abs(value), 2) >= 1;
      return converted<uint8_t>(dtype, dims, values);
    default:
      fail_running("test", "no values of type {}", name_of(dtype));
  }
}

// The largest finite number and a denormal.
struct Range {
  double largest, denormal;
};
Range range_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return {std::numeric_limits<double>::max(), 0x1p-1060};
    case DType::float16:
      return {65504, 0x1p-20};
    case DType::bfloat16:
      return {0x1.fep127, 0x1p-130};
    default:
      return {std::numeric_limits<float>::max(), 0x1p-140};
  }
}

}  // namespace

Tensor filled(DType dtype, const Dims& dims, Fill fill, uint64_t seed) {
  std::mt19937_64 engine(seed);
  auto integer = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
  std::vector<double> values(static_cast<size_t>(count_of(dims)));
  if (fill == Fill::ordered) {
    std::iota(values.begin(), values.end(), -static_cast<double>(values.size() / 2));
    std::shuffle(values.begin(), values.end(), engine);
    return tensor_of(dtype, dims, values);
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Range range = range_of(dtype);
  const double special[] = {
      0.0,           -0.0,           kInfinity,      -kInfinity,     std::numeric_limits<double>::quiet_NaN(),
      range.largest, -range.largest, range.denormal, -range.denormal};
  for (double& value : values) switch (fill) {
      case Fill::integers:
        value = integer(-8, 8);
        break;
      case Fill::nonzero:
        value = integer(1, 8) * (integer(0, 1) ? 1 : -1);
        break;
      case Fill::positive:
        value = integer(1, 9);
        break;
      case Fill::small:
        value = integer(0, 3);
        break;
      case Fill::reals:
        value = std::normal_distribution<double>()(engine);
        break;
      case Fill::unit:
        value = std::uniform_real_distribution(-0.99, 0.99)(engine);
        break;
      case Fill::above_one:
        value = std::uniform_real_distribution(1.01, 5.0)(engine);
        break;
      case Fill::special:
        value = integer(0, 1) ? std::normal_distribution<double>()(engine) : special[integer(0, 8)];
        break;
      case Fill::special_integers:
        value = integer(0, 1) ? integer(-8, 8) : special[integer(0, 4)];
        break;
      case Fill::ordered:
        break;
    }
  return tensor_of(dtype, dims, values);
}

uint64_t base_seed() {
  const char* given = std::getenv("TESSERA_TEST_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 20240611;
}

// FNV-1a: unlike std::hash the same everywhere, so that a seed repeats a failure on another machine.
uint64_t seed_of(std::string_view name) {
  uint64_t hash = 14695981039346656037ull ^ base_seed();
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

std::vector<const Value*> Subject::annotatable() const {
  std::vector<const Value*> values;
  for (const auto& value : graph->values())
    // Elements of less than a byte stay together.
    if ((value->kind == ValueKind::input || value->kind == ValueKind::state || value->kind == ValueKind::result) &&
        bits_of(value->dtype()) % 8 == 0)
      values.push_back(value.get());
  return values;
}

Dims Subject::dims_of(const Value* value) const {
  Dims dims;
  for (const Expr& extent : value->shape()) dims.push_back(extent.evaluate(symbols));
  return dims;
}

Builder::Builder(std::string name) : next_seed_(seed_of(name)) {
  subject_.name = std::move(name);
}

Builder& Builder::bind(std::string_view symbol, int64_t value) {
  subject_.symbols[std::string(symbol)] = value;
  return *this;
}

namespace {
Shape shape_of(std::string_view extents) {
  std::istringstream words{std::string(extents)};
  Shape shape;
  for (std::string word; words >> word;) shape.push_back(Expr::parse(word).value());
  return shape;
}
}  // namespace

Dims Builder::bound_dims(std::string_view extents) const {
  Dims dims;
  for (const Expr& extent : shape_of(extents)) dims.push_back(extent.evaluate(subject_.symbols));
  return dims;
}

Value* Builder::source(std::string_view extents, DType dtype, Tensor data, bool state) {
  std::string name = fmt::format("{}{}", state ? "w" : "x", subject_.graph->values().size());
  if (state) return subject_.graph->add_state(name, std::move(data));
  Value* value = subject_.graph->add_input(name, {dtype, shape_of(extents)});
  subject_.inputs[value->name] = std::move(data);
  return value;
}

Value* Builder::input(std::string_view extents, Fill fill, DType dtype) {
  return source(extents, dtype, filled(dtype, bound_dims(extents), fill, next_seed_++), false);
}

Value* Builder::weight(std::string_view extents, Fill fill, DType dtype) {
  return source(extents, dtype, filled(dtype, bound_dims(extents), fill, next_seed_++), true);
}

Value* Builder::indices(std::string_view extents, int64_t low, int64_t high, DType dtype) {
  std::mt19937_64 engine(next_seed_++);
  Dims dims = bound_dims(extents);
  std::vector<double> values(static_cast<size_t>(count_of(dims)));
  for (double& value : values) value = static_cast<double>(std::uniform_int_distribution(low, high - 1)(engine));
  return source(extents, dtype, tensor_of(dtype, dims, values), false);
}

Value* Builder::node(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes,
                     std::string_view domain) {
  return node_of(1, type, std::move(operands), std::move(attributes), domain)->outputs[0];
}

Node* Builder::node_of(size_t results, std::string_view type, std::vector<Value*> operands,
                       std::vector<Attribute> attributes, std::string_view domain) {
  std::vector<std::string> names;
  for (size_t r = 0; r < results; ++r) names.push_back(results == 1 ? "Y" : "Y" + std::to_string(r));
  Node* node = subject_.graph->add_node(type, std::move(operands), names, domain);
  node->attributes = std::move(attributes);
  return node;
}

Builder& Builder::output(Value* value) {
  subject_.graph->outputs.push_back(value);
  return *this;
}

Subject Builder::done(Bound bound) {
  subject_.bound = bound;
  ops::infer_types(*subject_.graph);
  subject_.graph->verify("test");
  return std::move(subject_);
}

}  // namespace tessera::property
