#include "tessera/program_io/rank_classes.h"

#include <gtest/gtest.h>

#include "tessera/program_io/manifest.h"

namespace tessera::program_io {
namespace {

Expr expr_of(const std::string& text) {
  return Expr::parse(text).value();
}

TEST(RankClasses, ranks_that_no_expression_tells_apart_are_one_class) {
  auto classes = classes_by(Mesh::parse("dp=2,tp=2"), {expr_of("64"), expr_of("batch + 1")});
  EXPECT_EQ(classes.of_rank, (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(classes.first_rank, (std::vector<int>{0}));
}

// 12 units over 5 ranks: 3 3 2 2 2.
TEST(RankClasses, balanced_split_makes_two) {
  auto classes = classes_by(Mesh::parse("dp=2,tp=5"), {expr_of("floordiv(16 - @tp, 5)")});
  EXPECT_EQ(classes.of_rank, (std::vector<int>{0, 0, 1, 1, 1, 0, 0, 1, 1, 1}));
  EXPECT_EQ(classes.first_rank, (std::vector<int>{0, 2}));
}

TEST(RankClasses, expressions_of_several_axes_combine) {
  auto classes = classes_by(Mesh::parse("dp=2,tp=2"), {expr_of("@dp*@tp"), expr_of("min(@tp, 0)")});
  EXPECT_EQ(classes.of_rank, (std::vector<int>{0, 0, 0, 1}));
}

TEST(RankClasses, many_ranks_cost_what_their_axes_cost) {
  std::vector<Expr> expressions;
  for (int i = 0; i < 500; ++i) expressions.push_back(expr_of("floordiv(" + std::to_string(100 + i) + " - @tp, 8)"));
  auto classes = classes_by(Mesh::parse("dp=2048,tp=8"), expressions);
  EXPECT_EQ(classes.of_rank.size(), 16384u);
  EXPECT_EQ(classes.count(), 8u);
  EXPECT_EQ(classes.first_rank.back(), 7);
}

TEST(RankList, is_printed_in_ranges_and_read_back) {
  EXPECT_EQ(print_ranks({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(parse_ranks("0-3,8", 9), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(print_ranks({5}), "5");
}

TEST(RankList, what_is_none_is_refused) {
  for (const char* text : {"", ",", "1,", "3-1", "2,2", "0-9", "-1", "0-", "a", "1 2", "99999999999"})
    EXPECT_FALSE(parse_ranks(text, 9)) << text;
}

}  // namespace
}  // namespace tessera::program_io
