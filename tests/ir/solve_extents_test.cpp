#include "tessera/ir/solve_extents.h"

#include <gmock/gmock.h>

#include <limits>

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// The sizes that follow from extents "2*batch" that have these sizes.
std::map<std::string, int64_t> solved(const std::vector<std::pair<std::string, int64_t>>& extents) {
  std::vector<KnownExtent> known;
  for (const auto& [text, size] : extents) known.push_back({*Expr::parse(text), size});
  std::map<std::string, int64_t> sizes;
  for (const auto& [symbol, found] : solve_extents(known)) sizes[symbol] = found.size;
  return sizes;
}

TEST(SolveExtents, solves_what_is_linear_in_one_symbol) {
  EXPECT_THAT(solved({{"b", 3}}), ElementsAre(Pair("b", 3)));
  EXPECT_THAT(solved({{"2*b", 6}}), ElementsAre(Pair("b", 3)));
  EXPECT_THAT(solved({{"2*b + 1", 7}}), ElementsAre(Pair("b", 3)));
  EXPECT_THAT(solved({{"b - 1", 7}}), ElementsAre(Pair("b", 8)));
  EXPECT_THAT(solved({{"9 - 2*b", 3}}), ElementsAre(Pair("b", 3)));
  EXPECT_THAT(solved({{"4*b", 0}}), ElementsAre(Pair("b", 0)));
}

TEST(SolveExtents, uses_what_others_say_in_any_order) {
  EXPECT_THAT(solved({{"b*s", 12}, {"past + s", 9}, {"b", 3}}),
              ElementsAre(Pair("b", 3), Pair("past", 5), Pair("s", 4)));
  EXPECT_THAT(solved({{"b*(s//2)", 12}, {"s", 5}}), ElementsAre(Pair("b", 6), Pair("s", 5)));
}

TEST(SolveExtents, says_nothing_of_what_has_no_size_or_several) {
  EXPECT_THAT(solved({{"2*b", 5}}), IsEmpty());
  EXPECT_THAT(solved({{"b + 4", 3}}), IsEmpty());
  EXPECT_THAT(solved({{"s//2", 3}}), IsEmpty());
  EXPECT_THAT(solved({{"min(s, 5)", 5}}), IsEmpty());
  EXPECT_THAT(solved({{"a + b", 5}}), IsEmpty());
  EXPECT_THAT(solved({{"b*b", 4}}), IsEmpty());
  EXPECT_THAT(solved({{"b*s", 0}, {"b", 0}}), ElementsAre(Pair("b", 0)));
  EXPECT_THAT(solved({{"7", 8}}), IsEmpty());
  EXPECT_THAT(solved({}), IsEmpty());
}

TEST(SolveExtents, names_the_extent_that_decides) {
  const auto found = solve_extents({{*Expr::parse("2*b"), 5}, {*Expr::parse("b"), 2}, {*Expr::parse("b"), 3}});
  EXPECT_EQ(found.at("b").size, 2);
  EXPECT_EQ(found.at("b").by, 1);
}

// A number that does not fit into 64 bits is not a size, and not undefined behaviour.
TEST(SolveExtents, leaves_out_what_overflows) {
  EXPECT_THAT(solve_extents({{Expr::symbol("b") - Expr(std::numeric_limits<int64_t>::max()), 9}}), IsEmpty());
  EXPECT_THAT(solved({{"3000000000*a + c", 3}, {"a", 4'000'000'000}}), ElementsAre(Pair("a", 4'000'000'000)));
  EXPECT_THAT(solved({{"c//a", 3}, {"a", 0}}), ElementsAre(Pair("a", 0)));
}

}  // namespace
}  // namespace tessera
