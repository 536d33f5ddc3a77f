#include "tessera/rewrite/causal.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

/// The condition b - a (or a - b) ≥ 0 that a comparison, or its negation, states; nullopt if it states none.
std::optional<Affine> condition(const AffineAnalysis& analysis, const Node& node, size_t rank, bool negated) {
  if (node.inputs.size() != 2) return std::nullopt;
  const Affine* a = analysis.of(node.inputs[0]);
  const Affine* b = analysis.of(node.inputs[1]);
  std::string_view type = node.op_type;
  bool less = type == "Less" || type == "LessOrEqual", greater = type == "Greater" || type == "GreaterOrEqual";
  if (!a || !b || (!less && !greater)) return std::nullopt;
  bool strict = (type == "Less" || type == "Greater") != negated;
  if (less != negated) std::swap(a, b);
  Affine difference{a->offset - b->offset - Expr(strict ? 1 : 0), std::vector<Expr>(rank, Expr(0))};
  for (size_t d = 0; d < rank; ++d) {
    if (d + a->strides.size() >= rank)
      difference.strides[d] = difference.strides[d] + a->strides[d + a->strides.size() - rank];
    if (d + b->strides.size() >= rank)
      difference.strides[d] = difference.strides[d] - b->strides[d + b->strides.size() - rank];
  }
  return difference;
}

/// Whether the value has its own element for every query and key of a shape [..., queries, keys].
bool covers(const Value* value, const Shape& whole) {
  size_t rank = value->rank();
  return rank >= 2 && whole.size() >= 2 && value->shape()[rank - 2] == whole[whole.size() - 2] &&
         value->shape()[rank - 1] == whole.back();
}

/// The content of the last two dimensions [queries, keys] if it depends only on which of the two coordinates is larger.
/// A uniform value has the same content in both halves, at any rank.
struct Halves {
  double seen;    ///< of keys up to the query
  double hidden;  ///< of later keys
  bool uniform() const { return seen == hidden; }
};

/// Finds the halves of a value, starting from constants, ranges and triangles. PyTorch writes is_causal like this:
///
///     Expand(1)            1, 1
///     Trilu lower          1, 0
///     Equal 0              0, 1
///     Where(…, -inf, 0)    0, -inf
class HalvesReader {
 public:
  explicit HalvesReader(const AffineAnalysis& analysis) : analysis_(analysis) {}

  std::optional<Halves> read(const Value* value) {
    if (!value || left_-- <= 0) return std::nullopt;
    if (auto scalar = scalar_of(value)) return both(*scalar);
    if (const Affine* affine = analysis_.of(value); affine && affine->uniform()) return both(*affine->uniform());
    if (value->kind == ValueKind::constant) return table(*value);
    if (!value->producer || !value->producer->domain.empty()) return std::nullopt;
    auto halves = result(*value->producer);
    return halves && !std::isnan(halves->seen) && !std::isnan(halves->hidden) ? halves : std::nullopt;
  }

 private:
  using Halved = std::optional<Halves>;

  static Halved both(double number) { return Halves{number, number}; }

  /// A constant [1, …, n, m].
  static Halved table(const Value& value) {
    if (value.rank() < 2 || value.data.count() == 0) return std::nullopt;
    const int64_t columns = value.data.dims.back(), rows = value.data.dims[value.rank() - 2];
    if (value.data.count() != rows * columns) return std::nullopt;
    if (value.dtype() == DType::boolean) return table(value.data.as<uint8_t>(), rows, columns);
    if (value.dtype() == DType::float32) return table(value.data.as<float>(), rows, columns);
    return std::nullopt;
  }

  template <typename T>
  static Halved table(std::span<const T> elements, int64_t rows, int64_t columns) {
    const Halves halves{static_cast<double>(elements.front()),
                        static_cast<double>(columns > 1 ? elements[1] : elements.front())};
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        if (static_cast<double>(elements[i * columns + j]) != (j <= i ? halves.seen : halves.hidden))
          return std::nullopt;
    return halves;
  }

  Halved result(const Node& node) {
    const std::string_view type = node.op_type;
    if (type == "Expand" || type == "Reshape" || type == "Identity") return view(node);
    if (type == "Slice") return slice(node);
    if (type == "ConstantOfShape") return filled(node);
    if (type == "Trilu") return triangle(node);
    if (type == "Not") return map(node, [](double x) { return x == 0; });
    if (type == "Cast") return cast(node);
    if (type == "Where") return where(node);
    if (auto compared = comparison(node)) return compared;
    return binary(node);
  }

  template <typename Function>
  Halved map(const Node& node, Function function) {
    auto x = read(node.inputs[0]);
    if (!x) return std::nullopt;
    return Halves{static_cast<double>(function(x->seen)), static_cast<double>(function(x->hidden))};
  }

  /// Whether an operand has the result's halves: it is not repeated along the last two dimensions.
  static bool aligned(const Halves& halves, const Value& operand, const Node& node) {
    return halves.uniform() || covers(&operand, node.outputs[0]->shape());
  }

  Halved view(const Node& node) {
    auto x = read(node.inputs[0]);
    if (!x || x->uniform()) return x;
    return node.outputs[0]->rank() >= 2 && aligned(*x, *node.inputs[0], node) ? x : std::nullopt;
  }

  Halved slice(const Node& node) {
    auto x = read(node.inputs[0]);
    if (!x || x->uniform()) return x;
    auto starts = numbers(node.input(1));
    auto steps = node.input(4) ? numbers(node.input(4)) : std::vector<int64_t>{};
    auto all = [](const std::vector<int64_t>& given, int64_t expected) {
      return std::all_of(given.begin(), given.end(), [&](int64_t number) { return number == expected; });
    };
    return starts && steps && all(*starts, 0) && all(*steps, 1) ? x : std::nullopt;
  }

  static Halved filled(const Node& node) {
    const Tensor* given = node.get<Tensor>("value");
    if (!given) return both(0);
    auto number = scalar_of(*given);
    return number ? both(*number) : std::nullopt;
  }

  Halved triangle(const Node& node) {
    auto x = read(node.inputs[0]);
    auto given = numbers(node.input(1));
    if (!x || (node.input(1) && (!given || given->size() != 1))) return std::nullopt;
    const int64_t diagonal = given ? given->at(0) : 0;
    if (node.get_int("upper", 1) != 0) return diagonal == 1 ? Halved(Halves{0, x->hidden}) : std::nullopt;
    return diagonal == 0 ? Halved(Halves{x->seen, 0}) : std::nullopt;
  }

  Halved cast(const Node& node) {
    const DType to = node.outputs[0]->dtype();
    if (to == DType::boolean) return map(node, [](double x) { return x != 0; });
    return is_float(to) ? map(node, [](double x) { return x; }) : std::nullopt;
  }

  Halved where(const Node& node) {
    auto condition = read(node.inputs[0]), a = read(node.inputs[1]), b = read(node.inputs[2]);
    if (!condition || !a || !b || !aligned(*condition, *node.inputs[0], node) || !aligned(*a, *node.inputs[1], node) ||
        !aligned(*b, *node.inputs[2], node))
      return std::nullopt;
    return Halves{condition->seen != 0 ? a->seen : b->seen, condition->hidden != 0 ? a->hidden : b->hidden};
  }

  /// A comparison of positions.
  Halved comparison(const Node& node) const {
    const size_t rank = node.outputs[0]->rank();
    for (bool negated : {false, true}) {
      auto holds = rank < 2 ? std::nullopt : condition(analysis_, node, rank, negated);
      bool causal = holds && holds->offset.is(0);
      for (size_t d = 0; causal && d < rank; ++d)
        causal = holds->strides[d].is(d + 2 == rank ? 1 : d + 1 == rank ? -1 : 0);
      if (causal) return Halves{negated ? 0.0 : 1.0, negated ? 1.0 : 0.0};
    }
    return std::nullopt;
  }

  Halved binary(const Node& node) {
    using Function = double (*)(double, double);
    static const std::map<std::string_view, Function> functions = {
        {"Add", [](double a, double b) { return a + b; }},
        {"Sub", [](double a, double b) { return a - b; }},
        {"Mul", [](double a, double b) { return a * b; }},
        {"And", [](double a, double b) { return double(a != 0 && b != 0); }},
        {"Or", [](double a, double b) { return double(a != 0 || b != 0); }},
        {"Equal", [](double a, double b) { return double(a == b); }},
        {"Less", [](double a, double b) { return double(a < b); }},
        {"LessOrEqual", [](double a, double b) { return double(a <= b); }},
        {"Greater", [](double a, double b) { return double(a > b); }},
        {"GreaterOrEqual", [](double a, double b) { return double(a >= b); }},
    };
    auto function = functions.find(node.op_type);
    if (function == functions.end() || node.inputs.size() != 2) return std::nullopt;
    auto a = read(node.inputs[0]), b = a ? read(node.inputs[1]) : std::nullopt;
    if (!b || !aligned(*a, *node.inputs[0], node) || !aligned(*b, *node.inputs[1], node)) return std::nullopt;
    return Halves{function->second(a->seen, b->seen), function->second(a->hidden, b->hidden)};
  }

  const AffineAnalysis& analysis_;
  int left_ = 64;  // values to visit; masks are small, but a whole model may depend on them
};

/// Whether the mask has its own element for every query and key, and the content of its halves.
std::optional<Halves> halves_of(const AffineAnalysis& analysis, const Value* mask, const Shape& scores) {
  return covers(mask, scores) ? HalvesReader(analysis).read(mask) : std::nullopt;
}

bool is_low(double number, DType dtype) {
  return number <= (dtype == DType::float16 ? -6e4 : -1e30);
}

}  // namespace

bool is_minus_infinity(const Value* value) {
  auto scalar = scalar_of(value);
  return scalar && is_low(*scalar, value->dtype());
}

bool is_causal(const AffineAnalysis& analysis, const Value* predicate, const Shape& scores, bool negated) {
  auto halves = halves_of(analysis, predicate, scores);
  return halves && (halves->seen != 0) == !negated && (halves->hidden != 0) == negated;
}

bool is_causal_penalty(const AffineAnalysis& analysis, const Value* mask, const Shape& scores) {
  auto halves = halves_of(analysis, mask, scores);
  return halves && halves->seen == 0 && is_low(halves->hidden, mask->dtype());
}

}  // namespace tessera::rewrite
