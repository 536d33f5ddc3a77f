#include "tessera/ops/library/reshape_rule.h"

#include <algorithm>
#include <functional>

#include "tessera/ops/library/infer.h"

namespace tessera::ops {
namespace {

// One shape being walked: dimensions first … last-1 are not matched yet; `rest` is what is left of each.
struct Side {
  std::vector<Expr> rest;
  std::vector<DimFactors> left, right;  // factors matched from the left and, reversed, from the right
  size_t first = 0, last = 0;

  explicit Side(const Shape& shape) : rest(shape), left(shape.size()), right(shape.size()), last(shape.size()) {}

  bool done() const { return first >= last; }
  void skip_ones() {
    while (first < last && rest[first].is(1)) ++first;
    while (first < last && rest[last - 1].is(1)) --last;
  }
  std::vector<DimFactors> dims() const {
    std::vector<DimFactors> all = left;
    for (size_t d = 0; d < all.size(); ++d) all[d].insert(all[d].end(), right[d].rbegin(), right[d].rend());
    return all;
  }
};

class Walk {
 public:
  Walk(const Shape& from, const Shape& to) : a_(from), b_(to) {
    for (Side* side : {&a_, &b_}) side->skip_ones();
    if (has_zero(from) || has_zero(to)) return;
    while (match_left() || match_group()) {
    }
    while (match_right()) {
    }
    finish();
  }

  Rule take() {
    // Names in the order of the operand's dimensions, whichever end they were found from.
    rule_.operands = {a_.dims()};
    rule_.results = {b_.dims()};
    std::vector<int> order;
    for (const auto& dims : {rule_.operands[0], rule_.results[0]})
      for (const DimFactors& dim : dims)
        for (int f : dim)
          if (std::find(order.begin(), order.end(), f) == order.end()) order.push_back(f);
    std::vector<Factor> sorted;
    std::vector<int> place(rule_.factors.size());
    for (int f : order) {
      place[f] = static_cast<int>(sorted.size());
      sorted.push_back(rule_.factors[f]);
      sorted.back().name = factor_name(sorted.size() - 1);
    }
    rule_.factors = std::move(sorted);
    for (auto* dims : {&rule_.operands[0], &rule_.results[0]})
      for (DimFactors& dim : *dims)
        for (int& f : dim) f = place[f];
    return std::move(rule_);
  }

 private:
  static bool has_zero(const Shape& shape) {
    return std::any_of(shape.begin(), shape.end(), [](const Expr& extent) { return extent.is(0); });
  }

  // What both hold at the end being matched: the smaller if it divides the larger.
  static std::optional<Expr> common(const Expr& a, const Expr& b) {
    if (Expr::exact_divide(a, b)) return b;
    if (Expr::exact_divide(b, a)) return a;
    return std::nullopt;
  }

  bool match_left() {
    if (a_.done() || b_.done()) return false;
    Expr &a = a_.rest[a_.first], &b = b_.rest[b_.first];
    auto factor = common(a, b);
    if (!factor) return false;
    int f = rule_.add("", *factor);
    a_.left[a_.first].push_back(f);
    b_.left[b_.first].push_back(f);
    a = *Expr::exact_divide(a, *factor);
    b = *Expr::exact_divide(b, *factor);
    for (Side* side : {&a_, &b_}) side->skip_ones();
    return true;
  }

  bool match_right() {
    if (a_.done() || b_.done()) return false;
    Expr &a = a_.rest[a_.last - 1], &b = b_.rest[b_.last - 1];
    auto factor = common(a, b);
    if (!factor) return false;
    int f = rule_.add("", *factor);
    a_.right[a_.last - 1].push_back(f);
    b_.right[b_.last - 1].push_back(f);
    a = *Expr::exact_divide(a, *factor);
    b = *Expr::exact_divide(b, *factor);
    for (Side* side : {&a_, &b_}) side->skip_ones();
    return true;
  }

  // The shortest runs of dimensions of both sides with equal products, which then stay whole: after 6 against 8, that
  // is [6, 4] against [8, 3].
  bool match_group() {
    if (a_.done() || b_.done()) return false;
    Expr a = 1;
    for (size_t i = a_.first; i < a_.last; ++i) {
      a = a * a_.rest[i];
      Expr b = 1;
      for (size_t j = b_.first; j < b_.last; ++j) {
        b = b * b_.rest[j];
        if (a != b) continue;
        keep_whole(a_, i + 1);
        keep_whole(b_, j + 1);
        for (Side* side : {&a_, &b_}) side->skip_ones();
        return true;
      }
    }
    return false;
  }

  // A dimension that has factors already is a product, so what is left of it needs a factor too.
  void keep_whole(Side& side, size_t end) {
    for (size_t d = side.first; d < end; ++d)
      if (!side.rest[d].is(1) && !(side.left[d].empty() && side.right[d].empty()))
        side.left[d].push_back(rule_.add("", side.rest[d], FactorKind::whole));
    side.first = end;
  }

  void finish() {
    bool one_each = a_.last == a_.first + 1 && b_.last == b_.first + 1;
    if (one_each && !(a_.rest[a_.first].is_constant() && b_.rest[b_.first].is_constant())) {
      int f = rule_.add("", *same_extent(a_.rest[a_.first], b_.rest[b_.first]));
      a_.left[a_.first].push_back(f);
      b_.left[b_.first].push_back(f);
      return;
    }
    for (Side* side : {&a_, &b_})
      if (!side->done()) keep_whole(*side, side->last);
  }

  Side a_, b_;
  Rule rule_;
};

}  // namespace

Rule reshape_rule(const Shape& from, const Shape& to) {
  return Walk(from, to).take();
}

}  // namespace tessera::ops
