#include "tessera/rewrite/raise/causal.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "tessera/base/float16.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

/// The condition b - a (or a - b) ≥ 0 that a comparison states; nullopt for other nodes.
std::optional<Affine> condition(const AffineAnalysis& analysis, const Node& node, size_t rank) {
  if (node.inputs.size() != 2) return std::nullopt;
  const Affine* a = analysis.of(node.inputs[0]);
  const Affine* b = analysis.of(node.inputs[1]);
  std::string_view type = node.op_type;
  bool less = type == "Less" || type == "LessOrEqual", greater = type == "Greater" || type == "GreaterOrEqual";
  if (!a || !b || (!less && !greater)) return std::nullopt;
  bool strict = type == "Less" || type == "Greater";
  if (less) std::swap(a, b);
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

/// The content of the last two dimensions [queries, keys] if it depends only on how far a key is ahead of a query, and
/// changes at few distances. A uniform value has the same content everywhere, at any rank.
class Bands {
 public:
  explicit Bands(double everywhere) : steps_{{kLowest, everywhere}} {}
  /// `before` for keys less than `ahead` positions ahead of the query, `from` for the others.
  static Bands step(double before, int64_t ahead, double from) {
    Bands bands(before);
    bands.add(ahead, from);
    return bands;
  }
  /// The values of a function of the distance, which changes at most where one of these bands changes.
  template <typename Function>
  static Bands made(std::initializer_list<const Bands*> of, Function function) {
    std::set<int64_t> begins;
    for (const Bands* bands : of)
      for (const auto& [begin, value] : bands->steps_) begins.insert(begin);
    Bands result(function(kLowest));
    for (int64_t begin : begins) result.add(begin, function(begin));
    return result;
  }

  /// Call it in the order of distances.
  void add(int64_t ahead, double value) {
    if (steps_.rbegin()->second != value) steps_[ahead] = value;
  }
  double at(int64_t ahead) const { return std::prev(steps_.upper_bound(ahead))->second; }
  bool uniform() const { return steps_.size() == 1; }
  /// The distances at which the value changes, with the new values.
  const std::map<int64_t, double>& steps() const { return steps_; }

 private:
  static constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  std::map<int64_t, double> steps_;
};

/// Finds the bands of a value, starting from constants, ranges and triangles. PyTorch writes is_causal like this, of
/// keys up to the query and later ones:
///
///     Expand(1)            1, 1
///     Trilu lower          1, 0
///     Equal 0              0, 1
///     Where(…, -inf, 0)    0, -inf
class BandsReader {
 public:
  explicit BandsReader(const AffineAnalysis& analysis) : analysis_(analysis) {}

  std::optional<Bands> read(const Value* value) {
    if (!value || left_-- <= 0) return std::nullopt;
    if (auto scalar = scalar_of(value)) return Bands(*scalar);
    if (const Affine* affine = analysis_.of(value); affine && affine->uniform())
      return Bands(static_cast<double>(*affine->uniform()));
    if (value->kind == ValueKind::constant) return table(*value);
    if (!value->producer || !value->producer->domain.empty()) return std::nullopt;
    auto bands = result(*value->producer);
    const bool known = bands && bands->steps().size() <= kMostSteps &&
                       std::none_of(bands->steps().begin(), bands->steps().end(),
                                    [](const auto& step) { return std::isnan(step.second); });
    return known ? bands : std::nullopt;
  }

 private:
  using Banded = std::optional<Bands>;
  static constexpr size_t kMostSteps = 8;

  /// A constant […, n, m], the same in all leading dimensions.
  static Banded table(const Value& value) {
    if (value.rank() < 2 || value.data.count() == 0) return std::nullopt;
    const int64_t columns = value.data.dims.back(), rows = value.data.dims[value.rank() - 2];
    switch (value.dtype()) {
      case DType::boolean:
        return table(value.data.as<uint8_t>(), rows, columns);
      case DType::float32:
        return table(value.data.as<float>(), rows, columns);
      case DType::float64:
        return table(value.data.as<double>(), rows, columns);
      case DType::float16:
        return table(value.data.as<Float16>(), rows, columns);
      case DType::bfloat16:
        return table(value.data.as<BFloat16>(), rows, columns);
      default:
        return std::nullopt;
    }
  }

  template <typename T>
  static Banded table(std::span<const T> elements, int64_t rows, int64_t columns) {
    const auto number = [](T element) {
      if constexpr (std::is_same_v<T, double>)
        return element;
      else
        return static_cast<double>(static_cast<float>(element));
    };
    const auto at = [&](int64_t i, int64_t j) { return number(elements[i * columns + j]); };
    Bands bands(at(rows - 1, 0));
    for (int64_t ahead = 2 - rows; ahead < columns; ++ahead) {
      const int64_t row = std::max<int64_t>(0, -ahead);
      bands.add(ahead, at(row, row + ahead));
      if (bands.steps().size() > kMostSteps) return std::nullopt;
    }
    std::vector<double> ahead;  // from the last row's first column on
    for (int64_t j = 1 - rows; j < columns; ++j) ahead.push_back(bands.at(j));
    const int64_t all_rows = std::ssize(elements) / columns;
    for (int64_t i = 0; i < all_rows; ++i) {
      const auto row = elements.subspan(i * columns, columns);
      const auto is_band = [&](T element, double wanted) { return number(element) == wanted; };
      if (!std::equal(row.begin(), row.end(), ahead.begin() + (rows - 1 - i % rows), is_band)) return std::nullopt;
    }
    return bands;
  }

  Banded result(const Node& node) {
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
  Banded map(const Node& node, Function function) {
    auto x = read(node.inputs[0]);
    if (!x) return std::nullopt;
    return Bands::made({&*x}, [&](int64_t ahead) { return static_cast<double>(function(x->at(ahead))); });
  }

  /// Whether an operand has the result's bands: it is not repeated along the last two dimensions.
  static bool aligned(const Bands& bands, const Value& operand, const Node& node) {
    return bands.uniform() || covers(&operand, node.outputs[0]->shape());
  }

  Banded view(const Node& node) {
    auto x = read(node.inputs[0]);
    if (!x || x->uniform()) return x;
    return node.outputs[0]->rank() >= 2 && aligned(*x, *node.inputs[0], node) ? x : std::nullopt;
  }

  Banded slice(const Node& node) {
    auto x = read(node.inputs[0]);
    if (!x || x->uniform()) return x;
    auto starts = numbers(node.input(1));
    auto steps = node.input(4) ? numbers(node.input(4)) : std::vector<int64_t>{};
    auto all = [](const std::vector<int64_t>& given, int64_t expected) {
      return std::all_of(given.begin(), given.end(), [&](int64_t number) { return number == expected; });
    };
    return starts && steps && all(*starts, 0) && all(*steps, 1) ? x : std::nullopt;
  }

  static Banded filled(const Node& node) {
    const Tensor* given = node.get<Tensor>("value");
    if (!given) return Bands(0);
    auto number = scalar_of(*given);
    return number ? Banded(Bands(*number)) : std::nullopt;
  }

  Banded triangle(const Node& node) {
    auto x = read(node.inputs[0]);
    auto given = numbers(node.input(1));
    if (!x || (node.input(1) && (!given || given->size() != 1))) return std::nullopt;
    const int64_t diagonal = given ? given->at(0) : 0;
    if (std::abs(diagonal) > std::numeric_limits<int32_t>::max()) return std::nullopt;
    const Bands kept = node.get_int("upper", 1) != 0 ? Bands::step(0, diagonal, 1) : Bands::step(1, diagonal + 1, 0);
    return Bands::made({&*x, &kept}, [&](int64_t ahead) { return kept.at(ahead) != 0 ? x->at(ahead) : 0; });
  }

  Banded cast(const Node& node) {
    const DType to = node.outputs[0]->dtype();
    if (to == DType::boolean) return map(node, [](double x) { return x != 0; });
    return is_float(to) ? map(node, [](double x) { return x; }) : std::nullopt;
  }

  Banded where(const Node& node) {
    auto condition = read(node.inputs[0]), a = read(node.inputs[1]), b = read(node.inputs[2]);
    if (!condition || !a || !b || !aligned(*condition, *node.inputs[0], node) || !aligned(*a, *node.inputs[1], node) ||
        !aligned(*b, *node.inputs[2], node))
      return std::nullopt;
    return Bands::made({&*condition, &*a, &*b},
                       [&](int64_t ahead) { return condition->at(ahead) != 0 ? a->at(ahead) : b->at(ahead); });
  }

  /// A comparison of positions.
  Banded comparison(const Node& node) const {
    const size_t rank = node.outputs[0]->rank();
    const auto holds = rank < 2 ? std::nullopt : condition(analysis_, node, rank);
    const auto offset = holds ? holds->offset.constant() : std::nullopt;
    if (!offset || std::abs(*offset) > std::numeric_limits<int32_t>::max()) return std::nullopt;
    for (size_t d = 0; d + 2 < rank; ++d)
      if (!holds->strides[d].is(0)) return std::nullopt;
    const Expr &of_query = holds->strides[rank - 2], &of_key = holds->strides[rank - 1];
    if (of_query.is(1) && of_key.is(-1)) return Bands::step(1, *offset + 1, 0);
    if (of_query.is(-1) && of_key.is(1)) return Bands::step(0, -*offset, 1);
    return std::nullopt;
  }

  Banded binary(const Node& node) {
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
    return Bands::made({&*a, &*b}, [&](int64_t ahead) { return function->second(a->at(ahead), b->at(ahead)); });
  }

  const AffineAnalysis& analysis_;
  int left_ = 64;  // values to visit; masks are small, but a whole model may depend on them
};

bool is_low(double number, DType dtype) {
  return number <= (dtype == DType::float16 ? -6e4 : -1e30);
}

}  // namespace

bool is_minus_infinity(const Value* value) {
  auto scalar = scalar_of(value);
  return scalar && is_low(*scalar, value->dtype());
}

std::optional<SeenKeys> seen_keys(const AffineAnalysis& analysis, const Value* mask, const Shape& scores,
                                  bool negated) {
  const auto content = covers(mask, scores) ? BandsReader(analysis).read(mask) : std::nullopt;
  if (!content) return std::nullopt;
  const bool is_predicate = mask->dtype() == DType::boolean;
  for (const auto& [ahead, value] : content->steps())
    if (!is_predicate && value != 0 && !is_low(value, mask->dtype())) return std::nullopt;
  const Bands seen = Bands::made({&*content}, [&](int64_t ahead) {
    return (is_predicate ? content->at(ahead) != 0 : content->at(ahead) == 0) != negated;
  });
  // A query sees the keys of one band, its own position among them.
  SeenKeys keys;
  bool before = true;
  for (auto step = seen.steps().begin(); step != seen.steps().end(); ++step) {
    if (step == seen.steps().begin()) {
      before = step->second == 0;
    } else if (step->second != 0) {
      if (!before) return std::nullopt;  // seen, hidden, and seen again
      before = false;
      keys.left = -step->first;
    } else {
      keys.right = step->first - 1;
    }
  }
  const bool sees_itself = !before && keys.left.value_or(0) >= 0 && keys.right.value_or(0) >= 0;
  return sees_itself ? std::optional(keys) : std::nullopt;
}

bool is_causal(const AffineAnalysis& analysis, const Value* predicate, const Shape& scores, bool negated) {
  const auto keys = seen_keys(analysis, predicate, scores, negated);
  return keys && keys->is_causal();
}

}  // namespace tessera::rewrite
