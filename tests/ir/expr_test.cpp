#include "tessera/ir/expr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

const Expr n = Expr::symbol("n"), m = Expr::symbol("m"), tp = Expr::axis_index("tp");
using Bindings = std::map<std::string, int64_t, std::less<>>;

TEST(expr, equal_polynomials_are_equal) {
  EXPECT_EQ(n * 3 + n, 4 * n);
  EXPECT_EQ((n + m) * (n - m), n * n - m * m);
  EXPECT_EQ((n + 1) * (m + 2), m * n + 2 * n + m + 2);
  EXPECT_EQ(n - n, Expr(0));
  EXPECT_TRUE((n - n).is_constant());
  EXPECT_FALSE(n == m);
  EXPECT_FALSE(n == Expr(1));
}

TEST(expr, prints_in_canonical_order) {
  EXPECT_EQ((1 + n + m * n).str(), "m*n + n + 1");
  EXPECT_EQ((2 - 3 * n).str(), "-3*n + 2");
  EXPECT_EQ((n - m).str(), "-m + n");
  EXPECT_EQ((n * n * 2).str(), "2*n*n");
  EXPECT_EQ(floordiv(6 - tp, 4).str(), "floordiv(-@tp + 6, 4)");
  EXPECT_EQ(Expr(0).str(), "0");
}

TEST(expr, division_takes_multiples_out) {
  EXPECT_EQ(floordiv(4 * n + 8, 4), n + 2);
  EXPECT_EQ(floordiv(n * m, m), n);
  EXPECT_EQ(floordiv(6 * n + m, 3), 2 * n + floordiv(m, 3));
  EXPECT_EQ(mod(6 * n + m, 3), mod(m, 3));
  EXPECT_EQ(mod(6 * n, 3), Expr(0));
  EXPECT_EQ(floordiv(mod(n, 4), 4), Expr(0));
  EXPECT_EQ(mod(mod(n, 4), 8), mod(n, 4));
  EXPECT_EQ(ceildiv(Expr(7), 2), Expr(4));
  EXPECT_EQ(floordiv(Expr(-7), 2), Expr(-4));
  EXPECT_EQ(mod(Expr(-7), 2), Expr(1));
  EXPECT_THROW(floordiv(Expr(1), 0), Error);
}

TEST(expr, min_and_max_know_bounds) {
  EXPECT_EQ(min(n, n + 1), n);
  EXPECT_EQ(max(n, n + 1), n + 1);
  EXPECT_EQ(max(n, 0), n);
  EXPECT_EQ(min(n, 0), Expr(0));
  EXPECT_EQ(min(n, m), min(m, n));
  EXPECT_EQ(min(n, 5).upper_bound(), 5);
  EXPECT_EQ(max(n, 5).lower_bound(), 5);
}

TEST(expr, exact_division) {
  EXPECT_EQ(Expr::exact_divide(6 * n * m, 3 * n), 2 * m);
  EXPECT_EQ(Expr::exact_divide(6 * n + 3, 3), 2 * n + 1);
  EXPECT_EQ(Expr::exact_divide(n * m + n, m + 1), n);
  EXPECT_EQ(Expr::exact_divide(n, n), Expr(1));
  EXPECT_EQ(Expr::exact_divide(0, n), Expr(0));
  EXPECT_EQ(Expr::exact_divide(n, 2), std::nullopt);
  EXPECT_EQ(Expr::exact_divide(n + 1, n), std::nullopt);
  EXPECT_EQ(Expr::exact_divide(n, 0), std::nullopt);
}

TEST(expr, symbols_are_collected_and_replaced) {
  Expr e = floordiv(n + 3, 4) * m + tp;
  std::set<std::string> symbols;
  e.collect_symbols(symbols);
  EXPECT_EQ(symbols, (std::set<std::string>{"@tp", "m", "n"}));
  Expr bound = e.substitute([](std::string_view name) -> std::optional<Expr> {
    return name == "n" ? std::optional(Expr(9)) : name == "@tp" ? std::optional(Expr(1)) : std::nullopt;
  });
  EXPECT_EQ(bound, 3 * m + 1);
  EXPECT_EQ(n.as_symbol(), "n");
  EXPECT_EQ((n + 1).as_symbol(), std::nullopt);
}

TEST(expr, a_symbol_without_a_value_is_named) {
  try {
    (n + m).evaluate(Bindings{{"n", 1}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("'m' has no value"));
  }
}

TEST(expr, overflow_is_an_error) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(Expr(kHuge) * Expr(2), Error);
  EXPECT_THROW(Expr(kHuge) + Expr(1), Error);
  EXPECT_THROW(Expr(-kHuge) - Expr(2), Error);
  EXPECT_THROW(kHuge * n + n, Error);
  EXPECT_THROW((n * m).evaluate(Bindings{{"n", kHuge}, {"m", 2}}), Error);
  EXPECT_THROW((n + m).evaluate(Bindings{{"n", kHuge}, {"m", 1}}), Error);
}

TEST(expr, reads_what_exporters_write) {
  EXPECT_EQ(Expr::parse("sequence + 1"), Expr::symbol("sequence") + 1);
  EXPECT_EQ(Expr::parse("Min(512, n)"), min(512, n));
  EXPECT_EQ(Expr::parse("n//2"), floordiv(n, 2));
  EXPECT_EQ(Expr::parse("2*(n + m)"), 2 * n + 2 * m);
  EXPECT_EQ(Expr::parse("-n"), 0 - n);
  // Fractions, as PyTorch's exporter to TorchScript writes what windows leave.
  EXPECT_EQ(Expr::parse("floor(n/2 - 1/2) + 1"), floordiv(n - 1, 2) + 1);
  EXPECT_EQ(Expr::parse("floor(floor(n/2 - 1/2)/2 + 1/3)"), floordiv(3 * floordiv(n - 1, 2) + 2, 6));
  EXPECT_EQ(Expr::parse("ceiling(n/32)*32"), ceildiv(n, 32) * 32);
  EXPECT_EQ(Expr::parse("4*n/2"), 2 * n);
  EXPECT_EQ(Expr::parse("-n/3 + 4*n/3"), n);
  for (const char* text : {"", "n +", "(n", "n)", "n m", "f(n)", "n//0", "floordiv(n, 0)", "99999999999999999999",
                           "n/2", "n/m", "floor(n/0)", "min(n/2, 3)", "floor(n/99999999999)"})
    EXPECT_EQ(Expr::parse(text), std::nullopt) << text;
  EXPECT_EQ(Expr::parse(std::string(100000, '(')), std::nullopt);
  EXPECT_EQ(Expr::parse(std::string(100000, '-') + "n"), std::nullopt);
  // An expression that grows beyond bounds is invalid, and this is found out quickly.
  std::string sum = "s0", power = "(a + b + c + d)";
  for (int i = 1; i < 20000; ++i) sum += " + s" + std::to_string(i);
  for (int i = 1; i < 16; ++i) power += "*(a + b + c + d)";
  for (const std::string& text : {sum, power}) EXPECT_EQ(Expr::parse(text), std::nullopt) << text.substr(0, 20);
}

// Found by fuzzing: each division asked twice for the bounds of its dividend.
TEST(expr, chains_of_divisions_take_no_longer_than_they_are_long) {
  std::string text = "s";
  for (int i = 0; i < 60; ++i) text += "//2";
  EXPECT_EQ(Expr::parse(text)->evaluate({{"s", int64_t{1} << 62}}), 4);
  text = "s";
  for (int i = 0; i < 300; ++i) text += "//s*e//7";
  EXPECT_TRUE(Expr::parse(text));
}

TEST(expr, shapes) {
  EXPECT_EQ(to_string(Shape{n, 6, n + 1}), "[n, 6, n + 1]");
  EXPECT_EQ(product({n, 6, 2}), 12 * n);
  EXPECT_EQ(product({}), Expr(1));
  EXPECT_EQ(constants_of({2, 3}), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(constants_of({2, n}), std::nullopt);
}

// An expression together with an independent way to compute it.
struct Checked {
  Expr expr;
  std::function<int64_t(const Bindings&)> value;
};

int64_t floor_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}

class RandomExpressions : public testing::Test {
 protected:
  int pick(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  Checked leaf() {
    int which = pick(0, 4);
    if (which < 3) {
      std::string name = which == 0 ? "n" : which == 1 ? "m" : "@tp";
      return {Expr::symbol(name), [name](const Bindings& b) { return b.at(name); }};
    }
    int64_t constant = pick(-4, 8);
    return {constant, [constant](const Bindings&) { return constant; }};
  }

  // Never zero: a constant, or a symbol plus one.
  Checked divisor() {
    if (pick(0, 3) == 0) return {n + 1, [](const Bindings& b) { return b.at("n") + 1; }};
    int64_t constant = pick(0, 4) == 0 ? -pick(1, 5) : pick(1, 6);
    return {constant, [constant](const Bindings&) { return constant; }};
  }

  Checked make(int depth) {
    if (depth == 0) return leaf();
    Checked a = make(depth - 1);
    switch (pick(0, 7)) {
      case 0:
      case 1: {
        Checked b = make(depth - 1);
        return {a.expr + b.expr, [=](const Bindings& x) { return a.value(x) + b.value(x); }};
      }
      case 2: {
        Checked b = make(depth - 1);
        return {a.expr - b.expr, [=](const Bindings& x) { return a.value(x) - b.value(x); }};
      }
      case 3: {
        Checked b = leaf();
        return {a.expr * b.expr, [=](const Bindings& x) { return a.value(x) * b.value(x); }};
      }
      case 4: {
        Checked b = divisor();
        return {floordiv(a.expr, b.expr), [=](const Bindings& x) { return floor_of(a.value(x), b.value(x)); }};
      }
      case 5: {
        Checked b = divisor();
        return {mod(a.expr, b.expr),
                [=](const Bindings& x) { return a.value(x) - floor_of(a.value(x), b.value(x)) * b.value(x); }};
      }
      case 6: {
        Checked b = make(depth - 1);
        return {min(a.expr, b.expr), [=](const Bindings& x) { return std::min(a.value(x), b.value(x)); }};
      }
      default: {
        Checked b = make(depth - 1);
        return {max(a.expr, b.expr), [=](const Bindings& x) { return std::max(a.value(x), b.value(x)); }};
      }
    }
  }

  Bindings bindings() { return {{"n", pick(0, 12)}, {"m", pick(0, 12)}, {"@tp", pick(0, 3)}}; }

  void SetUp() override {
    seed_ = std::random_device()();
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
  }
  std::string where(const Expr& expr) const { return fmt::format("seed {}: {}", seed_, expr.str()); }

  unsigned seed_ = 0;
  std::mt19937 random_;
};

TEST_F(RandomExpressions, simplification_keeps_values) {
  for (int i = 0; i < 3000; ++i) {
    Checked checked = make(pick(1, 4));
    for (int j = 0; j < 10; ++j) {
      Bindings b = bindings();
      ASSERT_EQ(checked.expr.evaluate(b), checked.value(b)) << where(checked.expr);
    }
  }
}

TEST_F(RandomExpressions, bounds_hold) {
  int bounded = 0;
  for (int i = 0; i < 3000; ++i) {
    Expr expr = make(pick(1, 4)).expr;
    auto low = expr.lower_bound(), high = expr.upper_bound();
    bounded += low.has_value() + high.has_value();
    for (int j = 0; j < 10; ++j) {
      int64_t value = expr.evaluate(bindings());
      if (low) {
        ASSERT_GE(value, *low) << where(expr);
      }
      if (high) {
        ASSERT_LE(value, *high) << where(expr);
      }
    }
  }
  EXPECT_GT(bounded, 1000) << "seed " << seed_;
}

TEST_F(RandomExpressions, print_and_parse_are_inverse) {
  for (int i = 0; i < 3000; ++i) {
    Expr expr = make(pick(1, 4)).expr;
    auto parsed = Expr::parse(expr.str());
    ASSERT_TRUE(parsed) << where(expr);
    ASSERT_EQ(*parsed, expr) << where(expr);
  }
}

TEST_F(RandomExpressions, substitution_keeps_values) {
  for (int i = 0; i < 3000; ++i) {
    const Expr expr = make(pick(1, 4)).expr;
    std::map<std::string, Expr, std::less<>> by;
    for (const char* name : {"n", "m", "@tp"})
      if (pick(0, 2)) by.emplace(name, pick(0, 1) ? Expr(pick(0, 9)) : max(make(1).expr, 0));
    const Expr made = expr.substitute([&](std::string_view name) -> std::optional<Expr> {
      const auto found = by.find(name);
      return found == by.end() ? std::nullopt : std::optional(found->second);
    });
    std::set<std::string> left;
    made.collect_symbols(left);
    const bool axes = left.contains("@tp");
    ASSERT_EQ(made.mentions_axes(), axes) << where(made);
    ASSERT_EQ(made.mentions_sizes(), left.size() > (axes ? 1U : 0U)) << where(made);
    for (int j = 0; j < 5; ++j) {
      const Bindings b = bindings();
      Bindings replaced = b;
      for (const auto& [name, replacement] : by) replaced[name] = replacement.evaluate(b);
      ASSERT_EQ(made.evaluate(b), expr.evaluate(replaced)) << where(expr) << " became " << made.str();
    }
  }
}

TEST_F(RandomExpressions, division_with_remainder) {
  for (int i = 0; i < 1000; ++i) {
    Expr a = make(pick(1, 3)).expr, b = divisor().expr;
    Bindings at = bindings();
    ASSERT_EQ((floordiv(a, b) * b + mod(a, b)).evaluate(at), a.evaluate(at)) << where(a) << " by " << b.str();
    ASSERT_EQ(ceildiv(a, 3).evaluate(at), -floordiv(0 - a, 3).evaluate(at)) << where(a);
  }
}

TEST_F(RandomExpressions, exact_division_inverts_multiplication) {
  for (int i = 0; i < 1000; ++i) {
    Expr a = make(pick(1, 3)).expr, b = pick(1, 9) * (pick(0, 1) ? n : m);
    auto quotient = Expr::exact_divide(a * b, b);
    ASSERT_TRUE(quotient) << where(a) << " times " << b.str();
    ASSERT_EQ(*quotient, a) << where(a) << " times " << b.str();
    Expr c = make(pick(1, 2)).expr;
    if (auto of_any = Expr::exact_divide(a, c)) {
      ASSERT_EQ(*of_any * c, a) << where(a) << " by " << c.str();
    }
  }
}

TEST_F(RandomExpressions, the_order_is_total) {
  std::vector<Expr> all;
  for (int i = 0; i < 60; ++i) all.push_back(i % 3 ? make(pick(1, 2)).expr : Expr(pick(-99, 99)));
  for (const Expr& a : all)
    for (const Expr& b : all) {
      ASSERT_EQ((a < b) + (b < a) + (a == b), 1) << where(a) << " and " << b.str();
      for (const Expr& c : all)
        ASSERT_FALSE(a < b && b < c && !(a < c)) << where(a) << ", " << b.str() << ", " << c.str();
    }
}

}  // namespace
}  // namespace tessera
