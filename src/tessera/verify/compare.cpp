#include "tessera/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/ir/tolerance.h"
#include "tessera/kernels/cpu/elementwise/narrow.h"

namespace tessera {
inline namespace v1 {
namespace {

bool is_comparable_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16 ||
         kernels::is_narrow_storage(dtype);
}

// numpy files have no bfloat16: a float32 array in the file may stand for a 16-bit float.
bool dtypes_agree(DType expected, DType actual) {
  bool widened = expected == DType::float32 && (actual == DType::bfloat16 || actual == DType::float16);
  return expected == actual || widened;
}

template <typename T>
std::vector<double> widened(const Tensor& tensor) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(tensor.count()));
  for (const T& element : tensor.as<T>()) {
    if constexpr (std::is_class_v<T>)
      values.push_back(static_cast<float>(element));
    else
      values.push_back(static_cast<double>(element));
  }
  return values;
}

std::vector<double> read_out(const Tensor& tensor) {
  const kernels::NarrowReader reader(tensor.dtype);
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.count(); ++i) values.push_back(reader.at(tensor.as<uint8_t>().data(), i));
  return values;
}

std::vector<double> floats_of(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::float64:
      return widened<double>(tensor);
    case DType::float16:
      return widened<Float16>(tensor);
    case DType::bfloat16:
      return widened<BFloat16>(tensor);
    case DType::float32:
      return widened<float>(tensor);
    default:
      return read_out(tensor);
  }
}

bool both_nan(double a, double b) {
  return std::isnan(a) && std::isnan(b);
}

double distance(double a, double b) {
  if (a == b || both_nan(a, b)) return 0;
  double apart = std::abs(a - b);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

// "[1, 3]" for element 7 of [2, 4].
std::string place_of(int64_t element, const Dims& dims) {
  Dims index(dims.size());
  for (size_t d = dims.size(); d-- > 0; element /= dims[d]) index[d] = element % dims[d];
  return fmt::format("[{}]", fmt::join(index, ", "));
}

bool is_spared(double expected, double actual, const Tolerance& tolerance) {
  return tolerance.spares_nan && std::isnan(expected) && std::isfinite(actual);
}

void compare_not_finite(Difference& difference, const Dims& dims, const std::vector<double>& expected,
                        const std::vector<double>& actual, const Tolerance& tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double a = expected[i], b = actual[i];
    if (is_spared(a, b, tolerance)) {
      ++difference.spared;
      continue;
    }
    difference.not_finite += !std::isfinite(b);
    if ((std::isfinite(a) && std::isfinite(b)) || a == b || both_nan(a, b)) continue;
    if (difference.misplaced++ == 0)
      difference.first_misplaced =
          fmt::format("{}: expected {}, got {}", place_of(static_cast<int64_t>(i), dims), a, b);
  }
}

void compare_floats(Difference& difference, const Tensor& expected, const Tensor& actual, const Tolerance& tolerance) {
  auto a = floats_of(expected), b = floats_of(actual);
  compare_not_finite(difference, actual.dims, a, b, tolerance);
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a[i])) largest = std::max(largest, std::abs(a[i]));
    if (!is_spared(a[i], b[i], tolerance)) difference.max_abs = std::max(difference.max_abs, distance(a[i], b[i]));
  }
  difference.max_rel = difference.max_abs == 0 ? 0 : difference.max_abs / largest;
  const auto type = tolerance.types.find(difference.name);
  const ToleranceOf usual = tolerance_of(type == tolerance.types.end() ? actual.dtype : type->second);
  double bound = tolerance.absolute.value_or(usual.absolute) + tolerance.relative.value_or(usual.relative) * largest;
  const bool any_compared = difference.spared == 0 || difference.spared < difference.elements;
  difference.pass = difference.misplaced == 0 && difference.max_abs <= bound && any_compared;
}

// uint64 values beyond int64's range wrap on both sides alike; only the printed distance is wrong.
void compare_integers(Difference& difference, const Tensor& expected, const Tensor& actual) {
  auto a = expected.to_int64(), b = actual.to_int64();
  double largest = 0;
  difference.pass = true;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    if (a[i] == b[i]) continue;
    difference.pass = false;
    difference.max_abs = std::max(difference.max_abs, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  difference.max_rel = difference.max_abs == 0 ? 0 : difference.max_abs / largest;
}

}  // namespace

Tolerance usual_tolerance(DType dtype) {
  ToleranceOf usual = tolerance_of(dtype);
  return {usual.absolute, usual.relative};
}

Difference compare(const std::string& name, const Tensor& expected, const Tensor& actual, const Tolerance& tolerance) {
  Difference difference{name, false, 0, 0, ""};
  difference.elements = actual.count();
  bool numbers = is_comparable_float(actual.dtype) || is_integer(actual.dtype) || actual.dtype == DType::boolean;
  if (!dtypes_agree(expected.dtype, actual.dtype))
    difference.problem = fmt::format("expected {}, got {}", name_of(expected.dtype), name_of(actual.dtype));
  else if (!numbers)
    difference.problem = fmt::format("{} cannot be compared", name_of(actual.dtype));
  else if (expected.dims != actual.dims)
    difference.problem =
        fmt::format("expected the shape [{}], got [{}]", fmt::join(expected.dims, ", "), fmt::join(actual.dims, ", "));
  else if (is_comparable_float(actual.dtype))
    compare_floats(difference, expected, actual, tolerance);
  else
    compare_integers(difference, expected, actual);
  return difference;
}

std::vector<Difference> compare(const Tensors& expected, const Tensors& actual, const Tolerance& tolerance) {
  std::vector<Difference> differences;
  for (const auto& [name, tensor] : expected) {
    auto found = actual.find(name);
    if (found == actual.end())
      differences.push_back({name, false, 0, 0, "the model has no such output"});
    else
      differences.push_back(compare(name, tensor, found->second, tolerance));
  }
  for (const auto& [name, tensor] : actual)
    if (!expected.contains(name))
      differences.push_back({name, false, 0, 0, "there is no expected array for this output"});
  return differences;
}

void judge_by_own_loss(std::vector<Difference>& differences, const Tensors& exact, const Tensors& expected,
                       const Tensors& actual) {
  for (Difference& difference : differences) {
    if (difference.pass || !difference.problem.empty() || difference.misplaced > 0) continue;
    const Tensor& answer = exact.at(difference.name);
    const Difference own = compare(difference.name, answer, expected.at(difference.name), {});
    const Difference many = compare(difference.name, answer, actual.at(difference.name), {});
    if (!own.problem.empty() || own.misplaced + many.misplaced > 0) continue;
    difference.own_loss = own.max_rel;
    difference.loss = many.max_rel;
    difference.pass = many.max_rel <= std::min(kMostLoss, kOwnLossTimes * own.max_rel);
  }
}

std::optional<Difference> first_diverging(Session& expected, Session& actual, const Tolerance& tolerance) {
  Tensors known;
  for (Session::Kept& kept : expected.kept()) known.emplace(kept.name, std::move(kept.value));
  return first_diverging(known, actual.kept(), tolerance);
}

std::optional<Difference> first_diverging(const Tensors& expected, const std::vector<Session::Kept>& actual,
                                          const Tolerance& tolerance) {
  for (const Session::Kept& kept : actual) {
    auto found = expected.find(kept.name);
    if (found == expected.end()) continue;
    Difference difference = compare(kept.name, found->second, kept.value, tolerance);
    if (!difference.pass && difference.problem.empty()) return difference;
  }
  return std::nullopt;
}

}  // namespace v1
}  // namespace tessera
