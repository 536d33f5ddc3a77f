#include "tessera/passes/move_again.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;
using testing::ElementsAre;

constexpr int kFar = 40;  // nodes

struct Case {
  std::string updated = "next";  ///< the next value of `w`; "": none
  int rows = 8;                  ///< of the input `x`
  bool frees = true;             ///< memory must be freed, whatever that takes
};

/// `first`, a run of other nodes that make `far` of `near`, and `last`.
spmd::Program moved(const std::string& first, const std::string& last, const Case& given = {}) {
  std::string between;
  for (int i = 0; i < kFar; ++i)
    between += fmt::format("  {} = Tanh ({})\n", i + 1 == kFar ? "far" : fmt::format("t{}", i),
                           i == 0 ? "near" : fmt::format("t{}", i - 1));
  const Compiled compiled(
      fmt::format("m (float[{}, 8] x) => (float[8, 8] y, float[8, 8] next) <float[8, 8] w> {{\n", given.rows) + first +
          between + last + "  next = Tanh (w)\n}\n",
      "");
  spmd::Program program = compiled.program();
  Value* state = program.graph->find("w");
  state->changing = true;
  if (!given.updated.empty()) program.graph->set_next(state, program.graph->find(given.updated));
  const Topology none;
  std::vector<std::string> notes;
  Context context{none, notes};
  if (given.frees) context.recompute = Recompute::parse("auto:1");
  move_again(program, context);
  spmd::verify(program, "move_again");
  return program;
}

/// The names of the operands of an operator's nodes, in order; those of copies end in ".again".
std::vector<std::string> operands_of(const spmd::Program& program, std::string_view op_type) {
  std::vector<std::string> names;
  for (const auto& node : program.graph->nodes())
    if (node->op_type == op_type)
      for (const Value* operand : node->inputs) names.push_back(operand->name);
  return names;
}

// A cast of a state serves readers nearby; what reads it much later has a cast of its own, and shares it.
TEST(MoveAgain, casts_a_state_for_each_group_of_readers) {
  const std::string first =
      "  narrow = Cast <to = 16> (w)\n  a = Neg (narrow)\n  b = Neg (narrow)\n  sum = Add (a, b)\n"
      "  near = Cast <to = 1> (sum)\n";
  const std::string last =
      "  late = Cast <to = 16> (far)\n  c = Mul (late, narrow)\n  d = Mul (c, narrow)\n  y = Cast <to = 1> (d)\n";
  const spmd::Program program = moved(first, last);
  EXPECT_THAT(operands_of(program, "Neg"), ElementsAre("narrow", "narrow"));
  EXPECT_THAT(operands_of(program, "Mul"), ElementsAre("late", "narrow.again", "c", "narrow.again"));
  EXPECT_THAT(operands_of(moved(first, last, {.updated = ""}), "Mul"), ElementsAre("late", "narrow", "c", "narrow"))
      << "a program that updates nothing stays as it is";
}

// The smaller form is held; a view of the moved value is made again with it.
TEST(MoveAgain, holds_what_was_widened) {
  const spmd::Program program = moved(
      "  narrow = Cast <to = 16> (w)\n  half = Tanh (narrow)\n  wide = Cast <to = 1> (half)\n  near = Neg (wide)\n",
      "  shape = Constant <value = int64[1] {64}> ()\n  flat = Reshape (wide, shape)\n  shape2 = Constant <value = "
      "int64[2] {8, 8}> ()\n  square = Reshape (flat, shape2)\n  y = Mul (far, square)\n");
  EXPECT_THAT(operands_of(program, "Neg"), ElementsAre("wide"));
  EXPECT_THAT(operands_of(program, "Mul"), ElementsAre("far", "square.again"));
}

// A narrowed activation is held if nothing else needs the wide one.
TEST(MoveAgain, holds_what_was_narrowed) {
  const std::string first =
      "  full = Mul (w, x)\n  narrow = Cast <to = 16> (full)\n  same = Neg (narrow)\n  near = Cast <to = 1> (same)\n";
  const std::string last = "  late = Cast <to = 16> (far)\n  sum = Add (late, narrow)\n  z = Cast <to = 1> (sum)\n";
  EXPECT_THAT(operands_of(moved(first, last + "  y = Abs (z)\n"), "Add"), ElementsAre("late", "narrow"));
  EXPECT_THAT(operands_of(moved(first, last + "  y = Sub (z, full)\n"), "Add"), ElementsAre("late", "narrow.again"))
      << "the wide one is there anyway";
}

// To cast a weight again takes a small part of a product of many rows, and most of one of few. What transposes the cast
// takes little time itself; the product that reads it counts.
TEST(MoveAgain, holds_what_takes_long_to_make_again) {
  const std::string first =
      "  narrow = Cast <to = 16> (w)\n  a = Neg (narrow)\n  near = Cast <to = 1> (a)\n  late = Cast <to = 16> (x)\n";
  const std::string last =
      "  turned = Transpose (narrow)\n  b = MatMul (late, turned)\n  c = Transpose (b)\n  square = MatMul (c, b)\n"
      "  wide = Cast <to = 1> (square)\n  y = Add (wide, far)\n";
  const auto read = [&](const Case& given) { return operands_of(moved(first, last, given), "Transpose").front(); };
  EXPECT_EQ(read({.rows = 8, .frees = false}), "narrow");
  EXPECT_EQ(read({.rows = 4096, .frees = false}), "narrow.again");
  EXPECT_EQ(read({.rows = 8, .frees = true}), "narrow.again");
}

// A copy of the state's cast would keep the state from being updated in its place.
TEST(MoveAgain, reads_no_state_behind_its_update) {
  const std::string first =
      "  narrow = Cast <to = 16> (w)\n  a = Neg (narrow)\n  early = Cast <to = 1> (a)\n"
      "  near = Abs (early)\n";
  const std::string last = "  late = Cast <to = 16> (far)\n  c = Mul (late, narrow)\n  y = Cast <to = 1> (c)\n";
  EXPECT_THAT(operands_of(moved(first, last), "Mul"), ElementsAre("late", "narrow.again"));
  EXPECT_THAT(operands_of(moved(first, last, {.updated = "early"}), "Mul"), ElementsAre("late", "narrow"));
}

}  // namespace
}  // namespace tessera::passes
