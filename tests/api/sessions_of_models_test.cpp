// Models whose shapes depend on values: of inputs, and of what they compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "api/in_parts.h"
#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compare.h"
#include "tessera/profile.h"

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

constexpr const char* kAxes = R"(g (float[a, b] x, int64[n] axes) => (float[c, d] y) { y = ReduceSum (x, axes) })";

TEST(SessionOfModel, compiles_for_the_values_of_inputs) {
  TemporaryFolder folder;
  const Model model = model_of(folder, kAxes);
  EXPECT_THAT(model.impl().value_inputs(), ElementsAre("axes"));
  EXPECT_FALSE(model.runs_in_parts());
  const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const char* mesh : {"tp=1", "tp=2", "tp=3"}) {
    Plan plan;
    plan.annotations = {{"x=[-, tp]"}};
    Session session(model, Mesh::parse(mesh), plan);
    EXPECT_THAT(elements_of(session.run({{"x", x}, {"axes", ints({1}, {0})}}).at("y")), ElementsAre(5, 7, 9)) << mesh;
    EXPECT_THAT(elements_of(session.run({{"x", x}, {"axes", ints({1}, {-1})}}).at("y")), ElementsAre(6, 15)) << mesh;
    EXPECT_THAT(elements_of(session.run({{"x", x}, {"axes", ints({2}, {0, 1})}}).at("y")), ElementsAre(21)) << mesh;
    EXPECT_EQ(session.programs().size(), 1u);
  }
}

TEST(SessionOfModel, keeps_the_programs_of_the_latest_values) {
  TemporaryFolder folder;
  Session session(model_of(folder, "g (float[n] x, int64[1] k) => (float[m] y, int64[m] at) { y, at = TopK (x, k) }"));
  Tensor x = Tensor::zeros(DType::float32, {20});
  for (int i = 0; i < 20; ++i) reinterpret_cast<float*>(x.mutable_data())[i] = static_cast<float>(i);
  for (int round = 0; round < 2; ++round)
    for (int64_t k = 1; k <= 12; ++k) {
      const Tensors outputs = session.run({{"x", x}, {"k", ints({1}, {k})}});
      ASSERT_EQ(outputs.at("y").dims, Dims{k});
      EXPECT_EQ(elements_of(outputs.at("y")).back(), static_cast<float>(20 - k));
    }
}

TEST(SessionOfModel, names_the_values_that_a_model_does_not_run_with) {
  TemporaryFolder folder;
  Session session(model_of(folder, kAxes));
  const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(message_of([&] {
                session.run({{"x", x}, {"axes", ints({1}, {7})}});
              }),
              testing::AllOf(HasSubstr("axes = [7]"), HasSubstr("ReduceSum")));
  EXPECT_THAT(message_of([&] { session.run({{"x", x}}); }), HasSubstr("'axes'"));
  EXPECT_THAT(message_of([&] { session.run({{"x", x}, {"axes", x}}); }), HasSubstr("'axes' is float32"));
  EXPECT_THAT(message_of([&] {
                session.run({{"x", x}, {"axes", ints({1}, {0})}, {"z", x}});
              }),
              HasSubstr("no input 'z'"));
  EXPECT_THAT(elements_of(session.run({{"x", x}, {"axes", ints({1}, {0})}}).at("y")), ElementsAre(5, 7, 9));
}

TEST(SessionOfModel, compile_takes_the_model_with_these_values) {
  TemporaryFolder folder;
  const Model model = model_of(folder, kAxes);
  EXPECT_THAT(message_of([&] { compile(model, Mesh()); }), HasSubstr("'axes'"));
  const Model fixed = model.with_values({{"axes", ints({1}, {1})}});
  Session session(compile(fixed, Mesh::parse("dp=2"), Plan{.presets = "dp"}));
  EXPECT_THAT(elements_of(session.run({{"x", floats({2, 3}, {1, 2, 3, 4, 5, 6})}}).at("y")), ElementsAre(6, 15));
  EXPECT_THAT(message_of([&] { model.with_values({{"axis", ints({1}, {1})}}); }), HasSubstr("'axis'"));
  EXPECT_THAT(message_of([&] { model.with_values({{"axes", floats({1}, {1})}}); }), HasSubstr("float32"));
}

// A result whose size depends on data, rows chosen by it, and a number computed from these that decides a shape.
constexpr const char* kParts =
    R"(g (float[a, 4] x, int64[1] least) => (float[n, 4] rows, float[m] best, int64[2, p] places)
  <float[4, 4] w = {2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2}> {
    double = MatMul (x, w)
    first = Constant <value: tensor = int64[1] {0}> ()
    column = Gather <axis = 1> (double, first)
    one = Constant <value: tensor = int64[1] {1}> ()
    flat = Squeeze (column, one)
    zero = Constant <value: tensor = float {0}> ()
    wanted = Greater (flat, zero)
    rows = Compress <axis = 0> (double, wanted)
    sums = ReduceSum <keepdims = 0> (rows, one)
    shape = Shape (sums)
    count = Min (shape, least)
    best, at = TopK (sums, count)
    places = NonZero (x)
  })";

TEST(SessionOfModel, runs_in_parts_where_sizes_depend_on_data) {
  TemporaryFolder folder;
  const Model model = model_of(folder, kParts);
  EXPECT_TRUE(model.runs_in_parts());
  EXPECT_THAT(model.impl().value_inputs(), ElementsAre("least"));
  const Tensor x = floats({3, 4}, {1, 0, 0, 2, -1, 5, 5, 5, 3, 0, 1, 0});
  const Tensor none = floats({1, 4}, {-1, 0, 0, 0});
  for (const char* mesh : {"tp=1", "tp=2", "tp=3", "dp=2,tp=2"}) {
    Plan plan;
    plan.annotations = {{"w=[-, tp]"}};
    Session session(model, Mesh::parse(mesh), plan);
    const Tensors outputs = session.run({{"x", x}, {"least", ints({1}, {5})}});
    EXPECT_EQ(outputs.at("rows").dims, (Dims{2, 4})) << mesh;
    EXPECT_THAT(elements_of(outputs.at("rows")), ElementsAre(2, 0, 0, 4, 6, 0, 2, 0)) << mesh;
    EXPECT_THAT(elements_of(outputs.at("best")), ElementsAre(8, 6)) << mesh;
    EXPECT_EQ(outputs.at("places").dims, (Dims{2, 8})) << mesh;
    const Tensors one = session.run({{"x", x}, {"least", ints({1}, {1})}});
    EXPECT_THAT(elements_of(one.at("best")), ElementsAre(8)) << mesh;
    const Tensors empty = session.run({{"x", none}, {"least", ints({1}, {5})}});
    EXPECT_EQ(empty.at("rows").dims, (Dims{0, 4})) << mesh;
    EXPECT_THAT(elements_of(empty.at("best")), IsEmpty()) << mesh;
  }
}

// The number of dimensions of a list of positions does not depend on data, and each part has the constants that it
// needs.
TEST(SessionOfModel, knows_the_other_extents_of_what_depends_on_data) {
  TemporaryFolder folder;
  const Model model = model_of(folder, R"(g (float[a] x) => (float[c] y) {
    n = NonZero (x)
    t = Transpose <perm = [1, 0]> (n)
    last = Constant <value_ints = [1]> ()
    r = Squeeze (t, last)
    y = Gather (x, r)
  })");
  Session session(model, Mesh::parse("tp=2"));
  for (int run = 0; run < 2; ++run)
    EXPECT_THAT(elements_of(session.run({{"x", floats({4}, {0, 3, 0, 4})}}).at("y")), ElementsAre(3, 4));
  EXPECT_THAT(elements_of(session.run({{"x", floats({3}, {1, 2, 3})}}).at("y")), ElementsAre(1, 2, 3));
}

// A program takes the extents to be one size; where they are two, the model runs in parts.
TEST(SessionOfModel, runs_in_parts_where_two_symbols_are_no_one_size) {
  TemporaryFolder folder;
  const Model model =
      model_of(folder, R"(g (bool k, int64 n, float[b, a] x, float[b, c] y) => (float[b, d] z, float[b, e] w) {
    z = If (k) <then_branch = t () => (p) { p = Abs (x) }, else_branch = e () => (q) { q = Neg (y) }>
    w = Loop <body = f (int64 i, bool go, v) => (bool on, u) { on = Identity (go)  u = Add (y, y) }> (n, "", x)
  })");
  EXPECT_FALSE(model.runs_in_parts());
  const Tensor yes = Tensor::of<uint8_t>(DType::boolean, {}, {1}), no = Tensor::of<uint8_t>(DType::boolean, {}, {0});
  const Tensor x = floats({2, 2}, {1, -2, 3, -4}), y = floats({2, 2}, {5, 6, 7, 8}),
               wide = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensors alike = {{"k", yes}, {"n", ints({}, {3})}, {"x", x}, {"y", y}};
  Tensors unlike = alike;
  unlike["y"] = wide;
  EXPECT_FALSE(model.runs_in_parts({}, alike));
  EXPECT_TRUE(model.runs_in_parts({}, unlike));
  for (const char* mesh : {"tp=1", "tp=2", "tp=3"}) {
    Plan plan;
    plan.shapes = {{"a", 2}};
    plan.annotations = {{"x=[tp, -]"}};
    Session session(model, Mesh::parse(mesh), plan);
    for (int round = 0; round < 2; ++round) {
      EXPECT_THAT(elements_of(session.run(alike).at("z")), ElementsAre(1, 2, 3, 4)) << mesh;
      EXPECT_EQ(session.programs().size(), 1u);
      const Tensors apart = session.run(unlike);
      EXPECT_THAT(elements_of(apart.at("z")), ElementsAre(1, 2, 3, 4)) << mesh;
      EXPECT_THAT(elements_of(apart.at("w")), ElementsAre(2, 4, 6, 8, 10, 12)) << mesh;
      EXPECT_GT(session.programs().size(), 1u);
      Tensors others = unlike;
      others["k"] = no;
      others["n"] = ints({}, {0});
      const Tensors none = session.run(others);
      EXPECT_THAT(elements_of(none.at("z")), ElementsAre(-1, -2, -3, -4, -5, -6)) << mesh;
      EXPECT_THAT(elements_of(none.at("w")), ElementsAre(1, -2, 3, -4)) << mesh;
    }
  }
  // Operators that need one size go on to refuse two.
  const Model sum = model_of(folder, R"(g (bool k, float[a] x, float[c] y) => (float[d] z) {
    s = Add (x, y)
    z = If (k) <then_branch = t () => (p) { p = Abs (x) }, else_branch = e () => (q) { q = Neg (s) }>
  })");
  Session session(sum, Mesh::parse("tp=2"), {});
  EXPECT_THAT(message_of([&] {
                session.run({{"k", yes}, {"x", floats({2}, {1, 2})}, {"y", floats({3}, {1, 2, 3})}});
              }),
              HasSubstr("Add producing 's'"));
}

// The same within a loop that runs in parts itself.
TEST(SessionOfModel, runs_in_parts_where_symbols_of_a_part_are_no_one_size) {
  TemporaryFolder folder;
  const Model model = model_of(folder, R"(g (int64 n, float[a] x, float[c] y) => (float[d] z) {
    none = Constant <value = float {0}> ()
    z = Loop <body = f (int64 i, bool go, float[s] v) => (bool on, u) {
      on = Identity (go)
      sum = ReduceSum <keepdims = 0> (v)
      large = Greater (sum, none)
      r = If (large) <then_branch = t () => (p) { p = Neg (v) }, else_branch = e () => (q) { q = Abs (y) }>
      u = Concat <axis = 0> (r, r)
    }> (n, "", x)
  })");
  EXPECT_TRUE(model.runs_in_parts());
  Session session(model, Mesh::parse("tp=2"), {});
  const Tensor x = floats({2}, {1, 2}), y = floats({3}, {1, 2, 3});
  EXPECT_THAT(elements_of(session.run({{"n", ints({}, {1})}, {"x", x}, {"y", y}}).at("z")),
              ElementsAre(-1, -2, -1, -2));
  EXPECT_THAT(elements_of(session.run({{"n", ints({}, {2})}, {"x", x}, {"y", y}}).at("z")),
              ElementsAre(1, 2, 3, 1, 2, 3));
}

// As detectors are exported, which look for boxes only if there are any: within branches, sizes depend on data, too.
// Inputs whose extents say the sizes go to one part, and one with an expression of these to another.
TEST(SessionOfModel, runs_in_parts_that_do_not_say_the_symbols_of_their_inputs) {
  TemporaryFolder folder;
  const Model model = model_of(folder, R"(g (float[past] p, float[s] q, float["past + s"] m) => (float[1, found] y) {
      pq = Concat <axis = 0> (p, q)
      at = NonZero (pq)
      y = Gather <axis = 0> (m, at)
    })");
  for (const char* mesh : {"tp=1", "tp=2"}) {
    Session session(model, Mesh::parse(mesh));
    for (const float first : {0.0F, 5.0F}) {
      const Tensors given = {
          {"p", floats({2}, {first, 1})}, {"q", floats({3}, {0, 2, 3})}, {"m", floats({5}, {10, 11, 12, 13, 14})}};
      if (first == 0)
        EXPECT_THAT(elements_of(session.run(given).at("y")), ElementsAre(11, 13, 14)) << mesh;
      else
        EXPECT_THAT(elements_of(session.run(given).at("y")), ElementsAre(10, 11, 13, 14)) << mesh;
    }
    EXPECT_THAT(
        message_of([&] {
          session.run({{"p", floats({1}, {1})}, {"q", floats({1}, {1})}, {"m", floats({3}, {1, 2, 3})}});
        }),
        HasSubstr("input 'm': dimension 0 has extent 3, but the model needs 2 (past + s); 'p' dimension 0 says"));
  }
}

TEST(SessionOfModel, takes_branches_in_which_sizes_depend_on_data) {
  TemporaryFolder folder;
  const Model model = model_of(
      folder,
      R"(g (float[a] x, float least) => (float[c] y, float[d] best) <float four = {4}, float two = {2}, int64[1] one = {1}> {
    most = ReduceMax <keepdims = 0> (x)
    any = Greater (most, least)
    y = If (any) <
      then_branch = found () => (float[e] kept) {
        n = NonZero (x)
        row = Squeeze (n)
        some = Gather (x, row)
        many = Greater (most, four)
        kept = If (many) <
          then_branch = first () => (float[f] large) {
            over = Greater (some, four)
            chosen = Compress <axis = 0> (some, over)
            large = Mul (chosen, two)
          },
          else_branch = second () => (float[g] small) { small = Identity (some) }
        >
      },
      else_branch = none () => (float[h] empty) <float[0] nothing = {}> { empty = Identity (nothing) }
    >
    count = Size (y)
    k = Reshape (count, one)
    best, places = TopK (y, k)
  })");
  ASSERT_TRUE(model.runs_in_parts());
  for (const char* mesh : {"tp=1", "tp=2"}) {
    Session session(model, Mesh::parse(mesh));
    const auto run = [&](const std::vector<float>& x) {
      return session.run({{"x", floats({static_cast<int64_t>(x.size())}, x)}, {"least", floats({}, {0})}});
    };
    for (int again = 0; again < 2; ++again) {
      EXPECT_THAT(elements_of(run({0, 3, 0, 1}).at("y")), ElementsAre(3, 1)) << mesh;
      EXPECT_THAT(elements_of(run({5, 3, 0, 7, 0}).at("y")), ElementsAre(10, 14)) << mesh;
      EXPECT_THAT(elements_of(run({5, 3, 0, 7, 0}).at("best")), ElementsAre(14, 10)) << mesh;
      EXPECT_THAT(elements_of(run({0, -3}).at("y")), IsEmpty()) << mesh;
    }
  }
}

// The condition follows from constants, so that each part could compute it.
TEST(SessionOfModel, takes_such_branches_whose_conditions_are_constants) {
  TemporaryFolder folder;
  for (const std::string condition :
       {"c = Constant <value = bool {1}> ()", "c = Equal (two, two)", "c = Identity (yes)"}) {
    const Model model =
        model_of(folder, "g (float[a] x) => (float[b] y) <float two = {2}, bool yes = {1}> {" + condition + R"(
      y = If (c) <
        then_branch = some () => (float[e] kept) {
          n = NonZero (x)
          row = Squeeze (n)
          kept = Gather (x, row)
        },
        else_branch = all () => (float[f] same) { same = Identity (x) }
      >
    })");
    for (const char* mesh : {"tp=1", "tp=2"}) {
      Session session(model, Mesh::parse(mesh));
      EXPECT_THAT(elements_of(session.run({{"x", floats({4}, {0, 3, 0, 4})}}).at("y")), ElementsAre(3, 4)) << condition;
    }
  }
}

TEST(SessionOfModel, refuses_what_it_cannot_run_in_parts) {
  TemporaryFolder folder;
  Plan placed;
  placed.places = {{"double=pp:0"}};
  EXPECT_THAT(message_of([&] { Session(model_of(folder, kParts), Mesh::parse("pp=2"), placed); }),
              HasSubstr("placing nodes of parts is not supported"));
  Plan stepped;
  stepped.states = {"w=next"};
  const Model model = model_of(folder, R"(g (float[a, 2] x) => (int64[2, n] at, float[2] next) <float[2] w = {1, 2}> {
    at = NonZero (x)
    next = Add (w, w)
  })");
  EXPECT_THAT(message_of([&] { Session(model, Mesh(), stepped); }), HasSubstr("'w' changes"));
}

TEST(SessionOfModel, names_nodes_between_parts_that_have_no_name) {
  TemporaryFolder folder;
  Session session(
      model_of(folder, "g (float[a] x, bool[b] some) => (float[c] y) { y = Compress <axis = 0> (x, some) }"));
  EXPECT_THAT(message_of([&] {
                session.run({{"x", floats({1}, {1})}, {"some", Tensor::of<uint8_t>(DType::boolean, {2}, {1, 1})}});
              }),
              testing::AllOf(HasSubstr("Compress 'y'"), HasSubstr("2 elements")));
}

// Steps a state, and reduces it along axes that are values of a run.
constexpr const char* kSteppingAxes = R"(g (float[2, 3] x, int64[n] axes) => (float[a, b] y, float[2, 3] next)
  <float[2, 3] w = {0, 0, 0, 0, 0, 0}> {
    next = Add (w, x)
    y = ReduceSum (next, axes)
  })";

TEST(SessionOfModel, steps_states_whatever_the_values) {
  TemporaryFolder folder;
  const Model model = model_of(folder, kSteppingAxes);
  Plan plan;
  plan.states = {"w=next"};
  Session session(model, Mesh(), plan);
  const Tensor x = floats({2, 3}, {1, 1, 1, 1, 1, 1});
  EXPECT_THAT(elements_of(session.run({{"x", x}, {"axes", ints({1}, {0})}}).at("y")), ElementsAre(2, 2, 2));
  EXPECT_THAT(elements_of(session.run({{"x", x}, {"axes", ints({1}, {1})}}).at("y")), ElementsAre(6, 6));
  EXPECT_THAT(elements_of(session.run({{"x", x}, {"axes", ints({1}, {0})}}).at("y")), ElementsAre(6, 6, 6));
  EXPECT_THAT(elements_of(session.states().at("w")), ElementsAre(3, 3, 3, 3, 3, 3));
  session.set_states({{"w", floats({2, 3}, {0, 0, 0, 0, 0, 0})}});
  EXPECT_THAT(elements_of(session.run({{"x", x}, {"axes", ints({1}, {1})}}).at("y")), ElementsAre(3, 3));
}

TEST(SessionOfModel, has_no_states_bytes_or_times_before_what_a_run_needs_is_compiled) {
  TemporaryFolder folder;
  Session session(model_of(folder, kAxes));
  const Tensors inputs = {{"x", floats({2, 3}, {1, 2, 3, 4, 5, 6})}, {"axes", ints({1}, {0})}};
  for (const std::string& message :
       {message_of([&] { session.states(); }), message_of([&] { session.process_bytes(); }),
        message_of([&] { session.threads_per_rank(); }), message_of([&] { session.profile(); })})
    EXPECT_THAT(message, HasSubstr("has not run"));
  EXPECT_THAT(session.programs(), IsEmpty());
  EXPECT_EQ(session.peak_bytes(inputs).size(), 1u);
  session.run(inputs);
  EXPECT_GT(session.process_bytes(), 0);
  EXPECT_GE(session.threads_per_rank(), 1);
  EXPECT_THAT(session.states(), IsEmpty());
}

TEST(SessionOfModel, compiles_what_a_run_needs_before_it) {
  TemporaryFolder folder;
  const Model stepping = model_of(folder, kSteppingAxes);
  Plan plan;
  plan.states = {"w=next"};
  const Tensors inputs = {{"x", floats({2, 3}, {1, 1, 1, 1, 1, 1})}, {"axes", ints({1}, {0})}};
  Session session(stepping, Mesh(), plan);
  const std::optional<Program> program = session.prepare(inputs);
  ASSERT_TRUE(program);
  ASSERT_EQ(program->inputs().size(), 1u) << "the axes are constants of it";
  session.set_states({{"w", floats({2, 3}, {9, 9, 9, 9, 9, 9})}});
  EXPECT_THAT(elements_of(session.run(inputs).at("y")), ElementsAre(20, 20, 20));
  Session of_program(compile(stepping.with_states({"w=next"}).for_program({}, inputs), Mesh()));
  ASSERT_TRUE(of_program.prepare({{"x", inputs.at("x")}}));
  EXPECT_GT(of_program.process_bytes(), 0);
  EXPECT_FALSE(Session(model_of(folder, kParts)).prepare({{"x", floats({1}, {1})}})) << "it runs in parts";
}

TEST(SessionOfModel, is_compiled_by_hand_for_what_must_be_known) {
  TemporaryFolder folder;
  const Model model = model_of(folder, kAxes);
  const Tensors inputs = {{"x", floats({2, 3}, {1, 2, 3, 4, 5, 6})}, {"axes", ints({1}, {0})}};
  const Model made = model.for_program({}, inputs);
  EXPECT_EQ(made.inputs().size(), 1u);
  EXPECT_THAT(elements_of(Session(compile(made, Mesh())).run({{"x", inputs.at("x")}}).at("y")), ElementsAre(5, 7, 9));
  EXPECT_THAT(message_of([&] { model.for_program(); }), HasSubstr("elements of its input 'axes'"));
  EXPECT_THAT(message_of([&] {
                model.for_program({}, {{"axes", ints({}, {0})}});
              }),
              HasSubstr("1 dimension and not 0"));
  EXPECT_THAT(message_of([&] { model_of(folder, kParts).for_program(); }), HasSubstr("runs in parts"));
}

TEST(SessionOfModel, writes_outputs_into_memory_of_the_caller) {
  TemporaryFolder folder;
  Session session(model_of(folder, kAxes));
  const Tensors inputs = {{"x", floats({2, 3}, {1, 2, 3, 4, 5, 6})}, {"axes", ints({1}, {0})}};
  Tensors outputs = {{"y", Tensor::zeros(DType::float32, {1, 3})}};
  const std::byte* memory = outputs.at("y").data;
  session.run_into(inputs, outputs);
  EXPECT_EQ(outputs.at("y").data, memory);
  EXPECT_THAT(elements_of(outputs.at("y")), ElementsAre(5, 7, 9));
  Tensors wrong = {{"y", Tensor::zeros(DType::float32, {3})}};
  EXPECT_THAT(message_of([&] { session.run_into(inputs, wrong); }), HasSubstr("the output 'y' is float32 [1, 3]"));
}

TEST(SessionOfModel, plans_no_peak_of_parts) {
  TemporaryFolder folder;
  Session session(model_of(folder, kParts));
  EXPECT_THAT(message_of([&] { session.peak_bytes({{"x", floats({1}, {1})}}); }), HasSubstr("runs in parts"));
}

TEST(SessionOfModel, is_that_of_its_program_where_the_model_is_one) {
  TemporaryFolder folder;
  const Model model = model_of(folder, "g (float[n, 4] x) => (float[n, 4] y) { y = Relu (x) }");
  const Tensors inputs = {{"x", floats({1, 4}, {-1, 2, -3, 4})}};
  Session session(model, Mesh::parse("tp=2"), {.annotations = {{"x=[-, tp]"}}});
  EXPECT_EQ(session.threads_per_rank(), Session(compile(model, Mesh::parse("tp=2"))).threads_per_rank());
  EXPECT_THAT(elements_of(session.run(inputs).at("y")), ElementsAre(0, 2, 0, 4));
  EXPECT_EQ(session.peak_bytes(inputs).size(), 2u);
  ASSERT_EQ(session.programs().size(), 1u);
  EXPECT_EQ(session.programs().front().mesh().size(), 2);
}

TEST(SessionOfModel, refuses_calls_once_it_was_moved_from) {
  TemporaryFolder folder;
  Session session(model_of(folder, "g (float[n] x) => (float[n] y) { y = Relu (x) }"));
  const Session other = std::move(session);
  EXPECT_THAT(message_of([&] { session.run({}); }), HasSubstr("moved from"));
  EXPECT_THAT(message_of([&] { session.states(); }), HasSubstr("moved from"));
  EXPECT_THAT(message_of([&] { session.profile(); }), HasSubstr("moved from"));
}

TEST(SessionOfModel, finds_distinct_elements_and_boxes) {
  TemporaryFolder folder;
  Session unique(model_of(folder, R"(g (float[n] x) => (float[m] y, int64[m] first, int64[n] which, int64[m] counts) {
    y, first, which, counts = Unique <sorted = 0> (x)
  })"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensors outputs = unique.run({{"x", floats({6}, {3, nan, 1, 3, nan, 2})}});
  EXPECT_EQ(outputs.at("y").dims, Dims{4});
  EXPECT_THAT(outputs.at("first").to_int64(), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(outputs.at("which").to_int64(), ElementsAre(0, 1, 2, 0, 1, 3));
  EXPECT_THAT(outputs.at("counts").to_int64(), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(unique.run({{"x", floats({0}, {})}}).at("counts").to_int64(), IsEmpty());
}

}  // namespace
}  // namespace tessera
