#include "tessera/ops/library/ratio.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "tessera/ops/fold.h"
#include "tessera/ops/library/infer.h"

namespace tessera::ops {
namespace {

using Ratios = std::optional<std::vector<Ratio>>;

constexpr int kMostVisited = 256;             // nodes that one value is computed from
constexpr int64_t kFinest = 1 << 10;          // of the denominators that floats hold beside an extent
constexpr double kLargest = double(1 << 24);  // of integers that float32 holds

bool is_power_of_two(const Expr& e) {
  auto number = e.constant();
  return number && *number > 0 && *number <= kFinest && (*number & (*number - 1)) == 0;
}

std::optional<Ratio> of_number(double x) {
  if (!(std::fabs(x) <= kLargest)) return std::nullopt;
  for (int64_t parts = 1; parts <= kFinest; parts *= 2)
    if (const double whole = x * static_cast<double>(parts); whole == std::trunc(whole))
      return Ratio{static_cast<int64_t>(whole), parts};
  return std::nullopt;
}

std::optional<Ratio> sum(const Ratio& a, const Ratio& b, int sign) {
  if (!a.exact || !b.exact) return std::nullopt;
  return Ratio{a.numerator * b.denominator + sign * (b.numerator * a.denominator), a.denominator * b.denominator};
}

std::optional<Ratio> times(const Ratio& a, const Ratio& b) {
  if (!a.exact || !b.exact) return std::nullopt;
  return Ratio{a.numerator * b.numerator, a.denominator * b.denominator};
}

std::optional<Ratio> over(const Ratio& a, const Ratio& b) {
  if (!a.exact || !b.exact) return std::nullopt;
  auto low = least(b.numerator);
  if (!low || *low < 1) return std::nullopt;
  Ratio quotient{a.numerator * b.denominator, a.denominator * b.numerator};
  // Holds for integers, and for one integer by a power of two: else the operands of the one rounding are not integers.
  quotient.exact = is_power_of_two(quotient.denominator);
  if (!quotient.exact && !(a.is_integer() && b.is_integer())) return std::nullopt;
  return quotient;
}

// In lowest terms, as far as that is known: 4·height / 2 is 2·height / 1.
Ratio reduced(Ratio ratio) {
  if (auto whole = Expr::exact_divide(ratio.numerator, ratio.denominator)) return {*whole, 1};
  while (is_power_of_two(ratio.denominator) && !ratio.denominator.is(1)) {
    auto half = Expr::exact_divide(ratio.numerator, 2);
    if (!half) break;
    ratio.numerator = *half;
    ratio.denominator = *ratio.denominator.constant() / 2;
  }
  return ratio;
}

Ratio rounded_down(const Ratio& ratio) {
  return {floordiv(ratio.numerator, ratio.denominator)};
}
Ratio rounded_up(const Ratio& ratio) {
  return {ceildiv(ratio.numerator, ratio.denominator)};
}

struct Row {
  std::string_view type;
  std::optional<Ratio> (*compute)(const std::vector<Ratio>&);
};
constexpr std::array kRows = {
    Row{"Add", [](const std::vector<Ratio>& x) { return sum(x[0], x[1], 1); }},
    Row{"Sub", [](const std::vector<Ratio>& x) { return sum(x[0], x[1], -1); }},
    Row{"Mul", [](const std::vector<Ratio>& x) { return times(x[0], x[1]); }},
    Row{"Div", [](const std::vector<Ratio>& x) { return over(x[0], x[1]); }},
    Row{"Neg", [](const std::vector<Ratio>& x) { return sum({0}, x[0], -1); }},
    Row{"Floor", [](const std::vector<Ratio>& x) { return std::optional(rounded_down(x[0])); }},
    Row{"Ceil", [](const std::vector<Ratio>& x) { return std::optional(rounded_up(x[0])); }},
};

// Those of which one result is one operand, or several in a row.
constexpr std::array<std::string_view, 6> kMoving = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Concat"};

bool is_followed(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64;
}

class Reader {
 public:
  Ratios of(const Value* value) {
    if (!value || !value->has_shape() || value->rank() > 1 || ++visited_ > kMostVisited) return std::nullopt;
    if (auto content = content_of(value)) {
      std::vector<Ratio> ratios;
      for (Expr& element : *content) ratios.push_back({std::move(element)});
      return ratios;
    }
    if (!is_followed(value->dtype())) return std::nullopt;
    if (value->kind == ValueKind::constant) return of_data(value->data);
    if (!value->producer || !value->producer->domain.empty()) return std::nullopt;
    Ratios ratios = result_of(*value->producer);
    if (ratios && !product(value->shape()).is(static_cast<int64_t>(ratios->size()))) return std::nullopt;
    return ratios;
  }

 private:
  static Ratios of_data(const Tensor& data) {
    if (data.count() > kMaxContent) return std::nullopt;
    std::vector<Ratio> ratios;
    auto take = [&](auto elements) {
      for (double x : elements) {
        auto ratio = of_number(x);
        if (!ratio) return false;
        ratios.push_back(*ratio);
      }
      return true;
    };
    const bool taken = data.dtype == DType::float32 ? take(data.as<float>()) : take(data.as<double>());
    return taken ? Ratios(std::move(ratios)) : std::nullopt;
  }

  Ratios result_of(const Node& node) {
    if (node.is("Gather")) return gathered(node);
    if (std::find(kMoving.begin(), kMoving.end(), node.op_type) != kMoving.end()) return moved(node);
    auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.type == node.op_type; });
    return row == kRows.end() ? std::nullopt : computed(node, *row);
  }

  // These operators never reverse or repeat a list; they move or concatenate it.
  Ratios moved(const Node& node) {
    std::vector<Ratio> all;
    const size_t operands = node.is("Concat") ? node.inputs.size() : 1;
    for (size_t i = 0; i < operands; ++i) {
      Ratios more = of(node.input(i));
      if (!more) return std::nullopt;
      all.insert(all.end(), more->begin(), more->end());
    }
    return all;
  }

  Ratios gathered(const Node& node) {
    auto indices = content_of(node.input(1));
    Ratios table = of(node.input(0));
    if (!table || !indices) return std::nullopt;
    std::vector<Ratio> taken;
    for (const Expr& index : *indices) {
      auto at = index.constant();
      const auto count = static_cast<int64_t>(table->size());
      if (!at || *at < -count || *at >= count) return std::nullopt;
      taken.push_back((*table)[static_cast<size_t>(*at < 0 ? *at + count : *at)]);
    }
    return taken;
  }

  Ratios computed(const Node& node, const Row& row) {
    std::vector<std::vector<Ratio>> operands;
    size_t count = 1;
    for (const Value* operand : node.inputs) {
      Ratios ratios = of(operand);
      if (!ratios) return std::nullopt;
      if (ratios->size() != 1) count = ratios->size();
      operands.push_back(std::move(*ratios));
    }
    std::vector<Ratio> result;
    for (size_t i = 0; i < count; ++i) {
      std::vector<Ratio> x;
      for (const auto& operand : operands) {
        if (operand.size() != 1 && operand.size() != count) return std::nullopt;
        x.push_back(operand[operand.size() == 1 ? 0 : i]);
      }
      auto element = unless_overflowing([&] { return row.compute(x); });
      if (!element) return std::nullopt;
      *element = reduced(*element);
      element->exact = element->exact && (element->is_integer() || is_power_of_two(element->denominator));
      result.push_back(std::move(*element));
    }
    return result;
  }

  int visited_ = 0;
};

}  // namespace

Ratios ratios_of(const Value* value) {
  return Reader().of(value);
}

std::optional<Expr> truncated(const Ratio& ratio) {
  if (ratio.is_integer()) return ratio.numerator;
  auto low = least(ratio.numerator);
  if (low && *low >= 0) return floordiv(ratio.numerator, ratio.denominator);
  if (auto high = ratio.numerator.upper_bound(); high && *high <= 0) return ceildiv(ratio.numerator, ratio.denominator);
  return std::nullopt;
}

}  // namespace tessera::ops
