#include "tessera/ops/fold.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/ratio.h"

namespace tessera::ops {
namespace {

using Folded = std::optional<Expr>;
using Arguments = std::vector<Expr>;

bool at_least(const std::optional<int64_t>& bound, int64_t value) {
  return bound && *bound >= value;
}
bool at_most(const std::optional<int64_t>& bound, int64_t value) {
  return bound && *bound <= value;
}

// 1 where e > 0, else 0.
Expr is_positive(const Expr& e) {
  if (at_least(e.lower_bound(), 1)) return 1;
  if (at_most(e.upper_bound(), 0)) return 0;
  return min(1, max(0, e));
}

Expr is_equal(const Expr& a, const Expr& b) {
  Expr difference = a - b;
  if (difference.is(0)) return 1;
  if (at_least(difference.lower_bound(), 1) || at_most(difference.upper_bound(), -1)) return 0;
  return 1 - min(1, max(difference, b - a));
}

// ONNX divides integers towards zero, floordiv downwards: the same where neither is negative.
Folded towards_zero(const Expr& a, const Expr& b) {
  constexpr size_t kLongest = 300;  // characters: the dividend stands twice in the quotient
  if (!at_least(least(b), 1)) return std::nullopt;
  if (!at_least(least(a), 0) && a.str().size() > kLongest) return std::nullopt;
  return at_least(least(a), 0) ? floordiv(a, b) : floordiv(max(a, 0), b) - floordiv(max(0 - a, 0), b);
}

Folded divide(const Expr& a, const Expr& b) {
  auto x = a.constant(), y = b.constant();
  if (b.is(0)) return std::nullopt;
  if (x && y) return *y == -1 ? 0 - a : Expr(*x / *y);
  if (auto exact = Expr::exact_divide(a, b)) return exact;
  return towards_zero(a, b);
}

Folded modulo(const Node& node, const Expr& a, const Expr& b) {
  if (b.is(0)) return std::nullopt;
  const bool like_c = node.get_int("fmod", 0) != 0;  // the dividend gives the sign
  if (!like_c || (at_least(least(a), 0) && at_least(least(b), 1))) return mod(a, b);
  const auto quotient = towards_zero(a, b);
  return quotient ? std::optional(a - *quotient * b) : std::nullopt;
}

Folded power(const Expr& base, const Expr& exponent) {
  auto times = exponent.constant();
  if (!times || *times < 0 || *times > 63) return std::nullopt;
  Expr result = 1;
  for (int64_t i = 0; i < *times; ++i) result = result * base;
  return result;
}

Folded select(const Expr& condition, const Expr& a, const Expr& b) {
  if (condition.is(1) || a == b) return a;
  if (condition.is(0)) return b;
  return b + condition * (a - b);
}

Folded clip(const Node& node, const Arguments& x) {
  size_t next = 1;
  Expr value = x[0];
  if (has_operand(node, 1)) value = max(value, x[next++]);
  if (has_operand(node, 2)) value = min(value, x[next]);
  return value;
}

Folded greatest(const Node&, const Arguments& x) {
  Expr result = x[0];
  for (size_t i = 1; i < x.size(); ++i) result = max(result, x[i]);
  return result;
}

Folded smallest(const Node&, const Arguments& x) {
  Expr result = x[0];
  for (size_t i = 1; i < x.size(); ++i) result = min(result, x[i]);
  return result;
}

struct FoldRow {
  std::string_view type;
  Folded (*fold)(const Node&, const Arguments&);
};

constexpr std::array kFolds = {
    FoldRow{"Identity", [](const Node&, const Arguments& x) -> Folded { return x[0]; }},
    FoldRow{"Neg", [](const Node&, const Arguments& x) -> Folded { return 0 - x[0]; }},
    FoldRow{"Abs", [](const Node&, const Arguments& x) -> Folded { return max(x[0], 0 - x[0]); }},
    FoldRow{"Sign",
            [](const Node&, const Arguments& x) -> Folded { return is_positive(x[0]) - is_positive(0 - x[0]); }},
    FoldRow{"Relu", [](const Node&, const Arguments& x) -> Folded { return max(x[0], 0); }},
    FoldRow{"Not", [](const Node&, const Arguments& x) -> Folded { return 1 - x[0]; }},
    FoldRow{"Add", [](const Node&, const Arguments& x) -> Folded { return x[0] + x[1]; }},
    FoldRow{"Sub", [](const Node&, const Arguments& x) -> Folded { return x[0] - x[1]; }},
    FoldRow{"Mul", [](const Node&, const Arguments& x) -> Folded { return x[0] * x[1]; }},
    FoldRow{"Div", [](const Node&, const Arguments& x) -> Folded { return divide(x[0], x[1]); }},
    FoldRow{"Mod", [](const Node& node, const Arguments& x) -> Folded { return modulo(node, x[0], x[1]); }},
    FoldRow{"Pow", [](const Node&, const Arguments& x) -> Folded { return power(x[0], x[1]); }},
    FoldRow{"Max", greatest},
    FoldRow{"Min", smallest},
    FoldRow{"And", [](const Node&, const Arguments& x) -> Folded { return x[0] * x[1]; }},
    FoldRow{"Or", [](const Node&, const Arguments& x) -> Folded { return max(x[0], x[1]); }},
    FoldRow{"Xor", [](const Node&, const Arguments& x) -> Folded { return x[0] + x[1] - 2 * x[0] * x[1]; }},
    FoldRow{"Equal", [](const Node&, const Arguments& x) -> Folded { return is_equal(x[0], x[1]); }},
    FoldRow{"Less", [](const Node&, const Arguments& x) -> Folded { return is_positive(x[1] - x[0]); }},
    FoldRow{"Greater", [](const Node&, const Arguments& x) -> Folded { return is_positive(x[0] - x[1]); }},
    FoldRow{"LessOrEqual", [](const Node&, const Arguments& x) -> Folded { return is_positive(x[1] - x[0] + 1); }},
    FoldRow{"GreaterOrEqual", [](const Node&, const Arguments& x) -> Folded { return is_positive(x[0] - x[1] + 1); }},
    FoldRow{"Where", [](const Node&, const Arguments& x) -> Folded { return select(x[0], x[1], x[2]); }},
    FoldRow{"Clip", clip},
};

bool followed(DType dtype) {
  return dtype == DType::int64 || dtype == DType::int32 || dtype == DType::boolean;
}

// Takes small float constants: exporters give Range's bounds as these, and cast them.
std::optional<std::vector<Expr>> truncated_constants(const Tensor& data, DType to) {
  std::vector<Expr> content;
  auto take = [&](auto elements) {
    for (double x : elements) {
      if (!(std::fabs(x) < 9e15)) return false;
      content.push_back(to == DType::boolean ? Expr(x != 0) : Expr(static_cast<int64_t>(x)));
    }
    return true;
  };
  const bool small = data.dims.size() <= 1 && data.count() <= kMaxContent;
  const bool exact = small && (data.dtype == DType::float32   ? take(data.as<float>())
                               : data.dtype == DType::float64 ? take(data.as<double>())
                                                              : false);
  return exact ? std::optional(std::move(content)) : std::nullopt;
}

// Takes what is computed from extents in floating point. What becomes bool is only asked whether it is 0.
std::optional<std::vector<Expr>> truncated_ratios(const Value& from, DType to) {
  auto ratios = ratios_of(&from);
  if (!ratios) return std::nullopt;
  std::vector<Expr> content;
  for (const Ratio& ratio : *ratios) {
    auto element = to == DType::boolean ? ratio.numerator : truncated(ratio);
    if (!element) return std::nullopt;
    content.push_back(to == DType::boolean ? 1 - is_equal(*element, 0) : std::move(*element));
  }
  return content;
}

}  // namespace

bool all_held(const std::vector<Expr>& elements, DType dtype) {
  return followed(dtype) && std::all_of(elements.begin(), elements.end(), [&](const Expr& element) {
           auto number = element.constant();
           return !number || dtype == DType::int64 ||
                  (dtype == DType::int32 ? *number == static_cast<int32_t>(*number) : *number == 0 || *number == 1);
         });
}

std::optional<std::vector<Expr>> folded_content(const Node& node, DType dtype, const Shape& shape) {
  auto row = std::find_if(kFolds.begin(), kFolds.end(), [&](const FoldRow& r) { return r.type == node.op_type; });
  if (row == kFolds.end() || !followed(dtype) || shape.size() > 1) return std::nullopt;
  auto count = product(shape).constant();
  if (!count || *count > kMaxContent) return std::nullopt;
  std::vector<std::vector<Expr>> operands;
  for (const Value* value : node.inputs) {
    if (!value) continue;
    auto content = content_of(value);
    if (!content) return std::nullopt;
    operands.push_back(std::move(*content));
  }
  std::vector<Expr> result;
  for (int64_t i = 0; i < *count; ++i) {
    Arguments arguments;
    for (const auto& content : operands) arguments.push_back(content[content.size() == 1 ? 0 : i]);
    Folded element = unless_overflowing([&] { return row->fold(node, arguments); });
    if (!element) return std::nullopt;
    result.push_back(std::move(*element));
  }
  if (!all_held(result, dtype)) return std::nullopt;
  return result;
}

std::optional<std::vector<Expr>> cast_content(const Value& from, DType to) {
  if (!followed(to)) return std::nullopt;
  auto content = content_of(&from);
  if (!content)
    content = from.kind == ValueKind::constant ? truncated_constants(from.data, to) : truncated_ratios(from, to);
  else if (to == DType::boolean)
    for (Expr& element : *content) element = 1 - is_equal(element, 0);
  return content && all_held(*content, to) ? content : std::nullopt;
}

}  // namespace tessera::ops
