#include "tessera/spmd/decide/idle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"

namespace tessera::spmd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kTwoProducts =
    "m (float[b, 6] x) => (float[b, 6] y) <float[6, 8] up, float[8, 6] down> {\n"
    "  h = MatMul (x, up)\n"
    "  a = Relu (h)\n"
    "  y = MatMul (a, down)\n"
    "}\n";

std::vector<std::string> warnings(std::string_view text, std::string_view mesh, const Compiled::Orders& orders,
                                  const Hints& hints = {{"b", 2}}) {
  Compiled compiled(text, mesh, orders);
  return idle_ranks(*compiled.layout, compiled.decisions, compiled.mesh, hints);
}

TEST(IdleRanks, are_named_where_an_axis_has_more_ranks_than_parts) {
  EXPECT_THAT(warnings(kTwoProducts, "dp=4", {{"x", "[dp, ?]"}}),
              ElementsAre(AllOf(HasSubstr("2 of the 4 ranks, at dp=2 to dp=3, idle: MatMul"), HasSubstr("b = 2"),
                                HasSubstr("give dp fewer ranks, or larger `shapes`"))));
  EXPECT_THAT(warnings(kTwoProducts, "tp=9", {{"down", "[tp, ?]"}}),
              ElementsAre(AllOf(HasSubstr("1 of the 9 ranks, at tp=8, idle"), HasSubstr("split along 8 only"))));
}

TEST(IdleRanks, are_none_where_all_have_a_part) {
  EXPECT_THAT(warnings(kTwoProducts, "dp=2", {{"x", "[dp, ?]"}}), IsEmpty());
  EXPECT_THAT(warnings(kTwoProducts, "dp=4", {{"x", "[dp, ?]"}}, {{"b", 5}}), IsEmpty()) << "2 1 1 1: uneven, not idle";
  EXPECT_THAT(warnings(kTwoProducts, "tp=5", {{"down", "[tp, ?]"}}), IsEmpty());
  EXPECT_THAT(warnings(kTwoProducts, "q=7", {}), IsEmpty()) << "what splits nothing is another matter";
}

TEST(IdleRanks, of_nested_axes_are_those_of_the_minor_one) {
  EXPECT_THAT(warnings(kTwoProducts, "dp=2,x=3", {{"x", "[{dp, x}, ?]"}}, {{"b", 4}}),
              ElementsAre(HasSubstr("2 of the 6 ranks, at x=2, idle")));
}

TEST(IdleRanks, are_named_where_they_idle_in_some_operators) {
  constexpr std::string_view kTwo =
      "m (float[b, 6] x) => (float[b, 64] y, float[b, 3] z) <float[6, 64] wide, float[6, 3] narrow> {\n"
      "  y = MatMul (x, wide)\n"
      "  z = MatMul (x, narrow)\n"
      "}\n";
  EXPECT_THAT(
      warnings(kTwo, "tp=8", {{"wide", "[?, tp]"}, {"narrow", "[?, tp]"}}),
      ElementsAre(AllOf(HasSubstr("5 of the 8 ranks, at tp=3 to tp=7, idle in 1 of the 2 operators that tp splits"),
                        HasSubstr("4.48 % of their FLOPs"))));
}

TEST(IdleRanks, are_named_for_each_number_of_parts) {
  constexpr std::string_view kTwo =
      "m (float[b, 6] x) => (float[b, 5] y, float[b, 3] z) <float[6, 5] wide, float[6, 3] narrow> {\n"
      "  y = MatMul (x, wide)\n"
      "  z = MatMul (x, narrow)\n"
      "}\n";
  EXPECT_THAT(warnings(kTwo, "tp=8", {{"wide", "[?, tp]"}, {"narrow", "[?, tp]"}}),
              ElementsAre(AllOf(HasSubstr("5 of the 8 ranks, at tp=3 to tp=7, idle in 1 of the 2 operators"),
                                HasSubstr("; 3 of the 8 ranks, at tp=5 to tp=7, idle: MatMul"))));
}

}  // namespace
}  // namespace tessera::spmd
