// Loops, scans and branches that no program can hold: their iterations are models that run one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/in_parts.h"
#include "tessera/api/impl.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

using test::TemporaryFolder;
using test::in_parts::elements_of;
using test::in_parts::floats;
using test::in_parts::ints;
using test::in_parts::message_of;
using test::in_parts::model_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Runs twice on each mesh, with the same sums; `expect` is given the outputs.
void run_on_meshes(const Model& model, const std::vector<std::string>& annotations, const Tensors& inputs,
                   const std::function<void(const Tensors&)>& expect) {
  Tensors values;
  for (const std::string& name : model.impl().value_inputs()) values.insert(*inputs.find(name));
  EXPECT_TRUE(model.with_values(values).runs_in_parts());
  for (const char* mesh : {"tp=1", "tp=2", "tp=3", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    Plan plan;
    for (const std::string& annotation : annotations) plan.annotations.push_back({annotation});
    Session session(model, Mesh::parse(mesh), plan);
    for (int again = 0; again < 2; ++again) expect(session.run(inputs));
  }
}

// Each row of x has as many elements above zero as it happens to have; w doubles.
constexpr const char* kFound = R"(g (float[r, 4] x) => (float[n] all, float[r2] sums)
  <float[0] nothing = {}, float zero = {0}, int64[1] first = {0}, int64[1] flat = {-1},
   float[4, 4] w = {2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2}> {
    shape = Shape <start = 0, end = 1> (x)
    count = Squeeze (shape)
    all, sums = Loop (count, "", nothing) <
      body = row (int64 i, bool c, float[k] before) => (bool c2, float[m] after, float sum) {
        c2 = Identity (c)
        line = Gather (x, i)
        both = Unsqueeze (line, first)
        wide = MatMul (both, w)
        double = Reshape (wide, flat)
        above = Greater (double, zero)
        some = Compress (double, above)
        after = Concat <axis = 0> (before, some)
        sum = ReduceSum <keepdims = 0> (after)
      }
    >
  })";

TEST(SteppedLoops, find_in_each_iteration_as_much_as_there_is) {
  TemporaryFolder folder;
  const Tensor x = floats({3, 4}, {1, 0, -1, 2, 0, 0, -3, -4, 5, 6, 7, 8});
  run_on_meshes(model_of(folder, kFound), {"w=[-, tp]"}, {{"x", x}}, [](const Tensors& outputs) {
    EXPECT_THAT(elements_of(outputs.at("all")), ElementsAre(2, 4, 10, 12, 14, 16));
    EXPECT_THAT(elements_of(outputs.at("sums")), ElementsAre(6, 6, 58));
  });
  Session session(model_of(folder, kFound), Mesh::parse("tp=2"));
  EXPECT_THAT(elements_of(session.run({{"x", x}}).at("sums")), ElementsAre(6, 6, 58));
  const Tensors none = session.run({{"x", floats({0, 4}, {})}});
  EXPECT_THAT(elements_of(none.at("all")), IsEmpty());
  EXPECT_THAT(none.at("sums").dims, ElementsAre(0));
  EXPECT_THAT(elements_of(session.run({{"x", floats({1, 4}, {0, 0, 0, 1})}}).at("all")), ElementsAre(2));
}

TEST(SteppedLoops, go_on_without_iterations_from_the_first_run_on) {
  TemporaryFolder folder;
  Session session(model_of(folder, kFound));
  const Tensors none = session.run({{"x", floats({0, 4}, {})}});
  EXPECT_THAT(none.at("all").dims, ElementsAre(0));
  EXPECT_THAT(none.at("sums").dims, ElementsAre(0));
  EXPECT_THAT(elements_of(session.run({{"x", floats({1, 4}, {0, 0, 0, 1})}}).at("all")), ElementsAre(2));
}

// No operator's size depends on data: what is carried grows.
TEST(SteppedLoops, append_in_each_iteration) {
  TemporaryFolder folder;
  const Model model = model_of(folder, R"(g (float[a, 2] x, int64 n) => (float[b, 2] y) <float one = {1}> {
    y = Loop (n, "", x) <
      body = append (int64 i, bool c, float[k, 2] before) => (bool c, float[m, 2] after) {
        more = Add (before, one)
        after = Concat <axis = 0> (before, more)
      }
    >
  })");
  const Tensors inputs = {{"x", floats({1, 2}, {1, 5})}, {"n", ints({}, {2})}};
  run_on_meshes(model, {}, inputs, [](const Tensors& outputs) {
    EXPECT_THAT(outputs.at("y").dims, ElementsAre(4, 2));
    EXPECT_THAT(elements_of(outputs.at("y")), ElementsAre(1, 5, 2, 6, 2, 6, 3, 7));
  });
  EXPECT_THAT(model.impl().why_in_parts(), HasSubstr("extent"));
}

TEST(SteppedLoops, give_rows_until_a_computed_condition_ends_them) {
  TemporaryFolder folder;
  const Model model =
      model_of(folder, R"(g (float[a] x, float most) => (float[a] y, float[n, a] rows) <float two = {2}> {
    y, rows = Loop ("", "", x) <
      body = step (int64 i, bool c, float[k] before) => (bool again, float[k] after, float[k] row) {
        after = Mul (before, two)
        row = Identity (after)
        largest = ReduceMax <keepdims = 0> (after)
        again = Less (largest, most)
      }
    >
  })");
  for (const auto& [most, count] : {std::pair(4.f, 2), std::pair(30.f, 5)})
    run_on_meshes(model, {"x=[tp]"}, {{"x", floats({2}, {1, -1})}, {"most", floats({}, {most})}},
                  [&](const Tensors& outputs) {
                    EXPECT_THAT(outputs.at("rows").dims, ElementsAre(count, 2));
                    EXPECT_THAT(elements_of(outputs.at("y")), ElementsAre(1 << count, -(1 << count)));
                    EXPECT_EQ(elements_of(outputs.at("rows"))[2], 4);
                  });
}

TEST(SteppedLoops, end_before_they_begin_where_the_condition_says_so) {
  TemporaryFolder folder;
  Session session(model_of(folder, R"(g (float[a] x, bool go, int64 n) => (float[b] y, int64[c, d] places) {
    y, places = Loop (n, go, x) <
      body = cut (int64 i, bool c, float[k] before) => (bool c, float[m] after, int64[p] at) <int64[1] flat = {-1}, int64[1] zero = {0}, int64[1] one = {1}> {
        found = NonZero (before)
        flat_places = Reshape (found, flat)
        kept = Gather (before, flat_places)
        after = Neg (kept)
        at = Slice (flat_places, zero, one)
      }
    >
  })"));
  const Tensor x = floats({3}, {0, 2, 3});
  const auto run = [&](bool go, int64_t n) {
    return session.run({{"x", x}, {"go", Tensor::of<uint8_t>(DType::boolean, {}, {go})}, {"n", ints({}, {n})}});
  };
  EXPECT_THAT(elements_of(run(false, 5).at("y")), ElementsAre(0, 2, 3));
  EXPECT_THAT(run(false, 5).at("places").dims, ElementsAre(0, 0));
  EXPECT_THAT(elements_of(run(true, 3).at("y")), ElementsAre(-2, -3));
  EXPECT_THAT(run(true, 3).at("places").to_int64(), ElementsAre(1, 0, 0));
  EXPECT_THAT(elements_of(run(true, -1).at("y")), ElementsAre(0, 2, 3));
}

// A range that a carried counter moves, and a k that is an input.
TEST(SteppedLoops, take_ranges_that_carried_numbers_decide) {
  TemporaryFolder folder;
  const Model model =
      model_of(folder, R"(g (float[a] x, int64[r, 1] lengths, int64[1] k) => (float[r, s] y, int64[1] end)
    <int64[1] zero = {0}> {
    size = Size (lengths)
    end, y = Loop (size, "", zero) <
      body = piece (int64 i, bool c, int64[1] from) => (bool c, int64[1] to, float[s] best) {
        more = Gather (lengths, i)
        to = Add (from, more)
        piece = Slice (x, from, to)
        best, at = TopK (piece, k)
      }
    >
  })");
  const Tensors inputs = {
      {"x", floats({7}, {1, 2, 3, 9, 8, 7, 5})}, {"lengths", ints({3, 1}, {3, 2, 2})}, {"k", ints({1}, {2})}};
  run_on_meshes(model, {}, inputs, [](const Tensors& outputs) {
    EXPECT_THAT(outputs.at("y").dims, ElementsAre(3, 2));
    EXPECT_THAT(elements_of(outputs.at("y")), ElementsAre(3, 2, 9, 8, 7, 5));
    EXPECT_THAT(outputs.at("end").to_int64(), ElementsAre(7));
  });
}

// Once its elements are given, the loop is part of a program.
TEST(SteppedLoops, are_programs_where_an_input_decides_what_the_body_needs) {
  TemporaryFolder folder;
  const Model model = model_of(folder, R"(g (float[n, a] x, int64[1] k) => (float[n, b] y) {
    y = Scan (x) <num_scan_inputs = 1,
      body = best (float[a] row) => (float[b] most) { most, at = TopK (row, k) }
    >
  })");
  EXPECT_THAT(model.impl().value_inputs(), ElementsAre("k"));
  EXPECT_FALSE(model.runs_in_parts());
  Session session(model, Mesh::parse("tp=2"));
  for (int64_t k : {1, 2}) {
    const Tensors outputs = session.run({{"x", floats({2, 3}, {1, 3, 2, 6, 5, 4})}, {"k", ints({1}, {k})}});
    EXPECT_THAT(outputs.at("y").dims, ElementsAre(2, k));
    EXPECT_EQ(session.programs().size(), 1u);
  }
}

TEST(SteppedLoops, scan_along_any_axis_in_both_directions) {
  TemporaryFolder folder;
  const Model model = model_of(folder, R"(g (float[2, t] x, float[t, a] z) => (float[n] kept, float[3, t] y, float[t] s)
    <float[0] none = {}> {
    kept, y, s = Scan (none, x, z) <num_scan_inputs = 2, scan_input_axes = [-1, 0], scan_input_directions = [0, 1],
      scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
      body = pick (float[k] before, float[2] column, float[a] line) => (float[m] after, float[3] wide, float sum)
        <float zero = {0}> {
        above = Greater (column, zero)
        some = Compress (column, above)
        after = Concat <axis = 0> (before, some)
        both = ReduceSum (column)
        wide = Concat <axis = 0> (column, both)
        sum = ReduceSum <keepdims = 0> (line)
      }
    >
  })");
  const Tensors inputs = {{"x", floats({2, 3}, {1, -2, 3, 4, 5, -6})}, {"z", floats({3, 2}, {1, 2, 3, 4, 5, 6})}};
  run_on_meshes(model, {"z=[-, tp]"}, inputs, [](const Tensors& outputs) {
    EXPECT_THAT(elements_of(outputs.at("kept")), ElementsAre(1, 4, 5, 3));
    EXPECT_THAT(outputs.at("y").dims, ElementsAre(3, 3));
    EXPECT_THAT(elements_of(outputs.at("y")), ElementsAre(1, -2, 3, 4, 5, -6, 5, 3, -3));
    EXPECT_THAT(elements_of(outputs.at("s")), ElementsAre(3, 7, 11));
  });
  Session session(model);
  EXPECT_THAT(message_of([&] {
                session.run({{"x", floats({2, 1}, {1, 2})}, {"z", floats({2, 1}, {1, 2})}});
              }),
              HasSubstr("scan inputs have 1 and 2 elements"));
}

TEST(SteppedLoops, hold_loops_and_branches) {
  TemporaryFolder folder;
  const Model model =
      model_of(folder, R"(g (float[a] x, int64 n) => (float[b] y) <int64[1] flat = {-1}, float one = {1}> {
    y = Loop (n, "", x) <
      body = outer (int64 i, bool c, float[k] before) => (bool c2, float[m] after) <int64 two = {2}, float four = {4}> {
        c2 = Identity (c)
        grown = Loop (two, "", before) <
          body = inner (int64 j, bool d, float[p] held) => (bool d2, float[q] next) {
            d2 = Identity (d)
            found = NonZero (held)
            places = Reshape (found, flat)
            some = Gather (held, places)
            next = Sub (some, one)
          }
        >
        sum = ReduceSum <keepdims = 0> (grown)
        many = Greater (sum, four)
        after = If (many) <
          then_branch = all () => (float[r] same) { same = Identity (grown) },
          else_branch = twice () => (float[s] both) { both = Concat <axis = 0> (grown, grown) }
        >
      }
    >
  })");
  const Tensors inputs = {{"x", floats({4}, {1, 2, 4, 5})}, {"n", ints({}, {2})}};
  // 1 2 4 5 → 0 1 3 4 → 0 2 3, whose sum is above 4; → 1 2 → 0 1, whose sum is not.
  run_on_meshes(model, {}, inputs,
                [](const Tensors& outputs) { EXPECT_THAT(elements_of(outputs.at("y")), ElementsAre(0, 1, 0, 1)); });
}

TEST(SteppedLoops, take_branches_of_different_extents) {
  TemporaryFolder folder;
  const Model model =
      model_of(folder, R"(g (float[a, 2] x, float most) => (float[b, 2] y, float sum) <float two = {2}> {
    largest = ReduceMax <keepdims = 0> (x)
    many = Greater (largest, most)
    y = If (many) <
      then_branch = once () => (float[c, 2] same) { same = Mul (x, two) },
      else_branch = twice () => (float[d, 2] both) { both = Concat <axis = 0> (x, x) }
    >
    sum = ReduceSum <keepdims = 0> (y)
  })");
  for (const auto& [most, rows] : {std::pair(1.f, 1), std::pair(7.f, 2)})
    run_on_meshes(model, {"x=[-, tp]"}, {{"x", floats({1, 2}, {2, 3})}, {"most", floats({}, {most})}},
                  [rows = rows](const Tensors& outputs) {
                    EXPECT_THAT(outputs.at("y").dims, ElementsAre(rows, 2));
                    EXPECT_THAT(elements_of(outputs.at("sum")), ElementsAre(10));
                  });
}

// Extents that are expressions of one symbol are not taken to be equal.
TEST(SteppedLoops, carry_what_shrinks_or_turns) {
  TemporaryFolder folder;
  const std::string body =
      "g (float[a, 2] x, int64 n) => (float[b, c] y) <int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, "
      "int64[1] "
      "far = {1000}> { y = Loop (n, \"\", x) < body = step (int64 i, bool c, float[k, l] before) => (bool c2, float[m, "
      "o] "
      "after) { c2 = Identity (c) ";
  for (const auto& [node, rows] : {std::pair("after = Slice (before, one, far, zero)", 2),
                                   {"after = Slice (before, zero, far, zero, two)", 1},
                                   {"after = Concat <axis = 0> (before, before)", 16}}) {
    const Model model = model_of(folder, body + node + " } > }");
    run_on_meshes(model, {"x=[-, tp]"}, {{"x", floats({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}, {"n", ints({}, {2})}},
                  [rows = rows](const Tensors& outputs) { EXPECT_THAT(outputs.at("y").dims, ElementsAre(rows, 2)); });
  }
}

// What is in a branch runs between parts once the branch is taken, whatever is around it.
TEST(SteppedLoops, are_found_in_branches) {
  TemporaryFolder folder;
  const std::string inner_loop =
      "= Loop (n, \"\", x) < body = grow (int64 i, bool c, float[k] before) => (bool c2, float[m] after) { c2 = "
      "Identity (c) "
      "after = Concat <axis = 0> (before, before) } >";
  const std::string inner_if =
      "= If (small) < then_branch = p () => (float[p1] q1) { q1 = Concat <axis = 0> (x, x, x, x) }, else_branch = r () "
      "=> "
      "(float[r1] s1) { s1 = Identity (x) } >";
  for (const std::string& inner : {inner_loop, inner_if})
    for (const std::string condition : {"Greater (largest, zero)", "Equal (zero, zero)", "Equal (one, size)"}) {
      const Model model = model_of(
          folder,
          "g (float[1] x, int64 n) => (float[b] y) <float zero = {0}, float nine = {9}, int64 one = {1}> { largest = "
          "ReduceMax <keepdims = 0> (x) small = Less (largest, nine) size = Size (x) go = " +
              condition + " y = If (go) < then_branch = t () => (float[d] found) { found " + inner +
              " }, else_branch = e () => (float[f] same) { same = Identity (x) } > }");
      const Tensors inputs = {{"x", floats({1}, {3})}, {"n", ints({}, {2})}};
      for (const char* mesh : {"tp=1", "tp=2"}) {
        Session session(model, Mesh::parse(mesh));
        for (int again = 0; again < 2; ++again)
          EXPECT_THAT(elements_of(session.run(inputs).at("y")), ElementsAre(3, 3, 3, 3)) << inner << condition;
      }
    }
}

TEST(SteppedLoops, of_one_name_have_extents_of_their_own) {
  TemporaryFolder folder;
  OnnxModel model = parse_text(R"(g (float[a] x, int64 n) => (float[b] y, float[c] z, float sum) {
    y = Loop (n, "", x) <
      body = first (int64 i, bool c, float[k] p) => (bool c2, float[m] q) { c2 = Identity (c) q = Concat <axis = 0> (p, p) }
    >
    z = Loop (n, "", x) <
      body = second (int64 i2, bool d, float[k2] p) => (bool d2, float[m2] r) {
        d2 = Identity (d)
        both = Concat <axis = 0> (y, y)
        r = Concat <axis = 0> (p, both)
      }
    >
    sum = ReduceSum <keepdims = 0> (z)
  })");
  for (const auto& node : model.graph->nodes())
    if (node->is("Loop")) node->name = "loop";
  const std::filesystem::path path = folder / "model.onnx";
  export_model(model, path);
  run_on_meshes(Model::load(path), {}, {{"x", floats({2}, {1, 2})}, {"n", ints({}, {2})}}, [](const Tensors& outputs) {
    EXPECT_THAT(outputs.at("y").dims, ElementsAre(8));
    EXPECT_THAT(outputs.at("z").dims, ElementsAre(34));
    EXPECT_THAT(elements_of(outputs.at("sum")), ElementsAre(51));
  });
}

// A mistake in a body does not make the model run in parts.
TEST(SteppedLoops, are_not_what_a_wrong_body_becomes) {
  TemporaryFolder folder;
  const Model model = model_of(folder, R"(g (float[a, 3] x, int64 n) => (float[a, 3] y) <float[2] two = {1, 2}> {
    y = Loop (n, "", x) <
      body = step (int64 i, bool c, float[k, 3] p) => (bool c2, float[k, 3] q) { c2 = Identity (c) q = Add (p, two) }
    >
  })");
  EXPECT_FALSE(model.runs_in_parts());
  EXPECT_THAT(message_of([&] { Session session(model); }),
              testing::AllOf(HasSubstr("do not broadcast"), testing::Not(HasSubstr("iteration"))));
}

TEST(SteppedLoops, give_their_number_as_the_body_wants_it) {
  TemporaryFolder folder;
  const Model model = model_of(folder, R"(g (int64[a] x, int64 n) => (int64[b] y) {
    y = Loop (n, "", x) <
      body = step (int64[1] i, bool c, int64[k] p) => (bool c2, int64[m] q) { c2 = Identity (c) q = Concat <axis = 0> (p, i) }
    >
  })");
  Session session(model);
  EXPECT_THAT(session.run({{"x", ints({1}, {7})}, {"n", ints({}, {3})}}).at("y").to_int64(), ElementsAre(7, 0, 1, 2));
}

TEST(SteppedLoops, name_the_iteration_that_fails) {
  TemporaryFolder folder;
  Session session(model_of(folder, R"(g (float[a] x, int64 n) => (float[b] y, float[n, c] rows) {
    y, rows = Loop (n, "", x) <
      body = cut (int64 i, bool c, float[k] before) => (bool c2, float[m] after, float[q] row) <int64[1] flat = {-1}, float one = {1}> {
        c2 = Identity (c)
        found = NonZero (before)
        places = Reshape (found, flat)
        row = Gather (before, places)
        after = Sub (row, one)
      }
    >
  })"));
  const Tensor x = floats({3}, {1, 2, 3});
  EXPECT_THAT(elements_of(session.run({{"x", x}, {"n", ints({}, {1})}}).at("rows")), ElementsAre(1, 2, 3));
  EXPECT_THAT(message_of([&] {
                session.run({{"x", x}, {"n", ints({}, {2})}});
              }),
              testing::AllOf(HasSubstr("iteration 1 gives a row [2] after rows [3]"), HasSubstr("carried value")));
  EXPECT_THAT(elements_of(session.run({{"x", x}, {"n", ints({}, {1})}}).at("y")), ElementsAre(0, 1, 2));
}

TEST(SteppedLoops, are_refused_where_they_draw_random_numbers_or_never_end) {
  TemporaryFolder folder;
  const auto model = [&](const std::string& trips, const std::string& node) {
    return model_of(folder,
                    "g (float[a] x, int64 n) => (float[b] y) <int64[1] flat = {-1}> { y = Loop (" + trips +
                        ", \"\", x) < body = cut (int64 i, bool c, float[k] before) => (bool c2, float[m] after) { "
                        "c2 = Identity (c) found = NonZero (before) places = Reshape (found, flat) some = Gather "
                        "(before, places) " +
                        node + " } > }");
  };
  EXPECT_THAT(message_of([&] { Session(model("n", "after = RandomNormalLike (some)")); }), HasSubstr("random numbers"));
  EXPECT_THAT(message_of([&] { Session(model("\"\"", "after = Neg (some)")); }), HasSubstr("never ends"));
}

}  // namespace
}  // namespace tessera
