// What runs once: casts and products of weights, tables.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "api/in_parts.h"
#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/check.h"
#include "tessera/compare.h"
#include "tessera/onnx/export.h"
#include "tessera/onnx/external_location.h"
#include "tessera/onnx/import.h"

namespace tessera {
namespace {

using test::ramp;
using test::TemporaryFolder;
using test::write_model;
using test::in_parts::message_of;
using testing::HasSubstr;

// A weight with its adapter, a weight made of another one that is an output, too, a table, and a transposed weight.
constexpr std::string_view kAdapted = R"(
adapted (float[batch, 16] x) => (float[batch, 8] y, float[12, 16] twice) <
  float[16, 12] w, float[16, 2] a, float[2, 12] b, float[12, 16] v, float[8, 16] head,
  float[16] freq, float two = {2}, constant int64[1] axes = {0}, constant int64[3] indices = {3, 1, 2}> {
  ab = MatMul (a, b)
  adapted = Add (w, ab)
  h = MatMul (x, adapted)
  r = Relu (h)
  twice = Mul (v, two)
  m = MatMul (r, twice)
  rows = Gather (v, indices)
  sum = ReduceSum <keepdims = 0> (rows, axes)
  wave = Sin (freq)
  table = Mul (wave, sum)
  n = Mul (m, table)
  heads = Transpose <perm = [1, 0]> (head)
  y = MatMul (n, heads)
})";

class Init : public testing::TestWithParam<const char*> {
 protected:
  Model model() const { return Model::load(write_model(folder_, kAdapted, 3)); }
  Program program() const { return compile(model(), Mesh::parse(GetParam())); }
  static Tensors inputs() { return {{"x", ramp({5, 16}, 2)}}; }

  TemporaryFolder folder_;
};

size_t position(const std::string& text, std::string_view part) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part << " in\n" << text;
  return at;
}

TEST_P(Init, holds_what_depends_on_weights_only) {
  const std::string text = program().text();
  const size_t step = position(text, "\nadapted (");
  for (const char* node : {"ab = MatMul", "adapted = Add", "twice = Mul", "table = Mul"})
    EXPECT_LT(position(text, node), step) << node << " runs once:\n" << text;
  for (const char* node : {"h = MatMul", "m = MatMul", "heads = Transpose", "y = MatMul"})
    EXPECT_GT(position(text, node), step) << node << " runs in every step:\n" << text;
}

TEST_P(Init, changes_no_bit) {
  const Program program = this->program();
  Session once(program, test::one_thread());
  SessionOptions options = test::one_thread();
  options.keep_all = true;  // computes everything in each step, node by node
  Session each(program, options);
  for (int run = 0; run < 2; ++run) {
    const Tensors expected = each.run(inputs()), actual = once.run(inputs());
    for (const Difference& difference : compare(expected, actual)) EXPECT_TRUE(difference.pass) << difference.name;
    test::expect_same({{"twice", actual.at("twice")}}, {{"twice", expected.at("twice")}});
  }
  std::vector<std::string> kept;
  for (const Session::Kept& value : each.kept()) kept.push_back(value.name);
  EXPECT_THAT(kept, testing::IsSupersetOf({"ab", "adapted", "twice", "wave"}));
}

TEST_P(Init, makes_no_states_of_the_model) {
  std::vector<std::string> names;
  for (const StateInfo& state : program().states()) names.push_back(state.tensor.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("w", "a", "b", "v", "freq", "head"));
}

TEST_P(Init, is_proved_and_planned) {
  const Program program = this->program();
  const CheckReport report = check_program(program);
  EXPECT_TRUE(report.good()) << report.findings.front().message;
  Session session(program, test::one_thread());
  session.run(inputs());
  const std::vector<int64_t> peaks = session.peak_bytes(inputs());
  for (size_t rank = 0; rank < peaks.size(); ++rank)
    EXPECT_EQ(peaks[rank], program.figures(static_cast<int64_t>(rank), {{"batch", 5}}).peak_bytes);
}

TEST_P(Init, serves_all_sizes) {
  const Program program = this->program();
  Session session(program, test::one_thread());
  for (int64_t batch : {5, 1, 7, 5}) {
    const Tensors inputs = {{"x", ramp({batch, 16}, batch)}};
    test::expect_same(session.run(inputs), Session(program, test::one_thread()).run(inputs));
  }
}

TEST_P(Init, of_a_written_program_gives_the_same_bits) {
  const Program program = this->program();
  const Tensors expected = Session(program, test::one_thread()).run(inputs());
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for}) {
    const auto folder = folder_ / fmt::format("program{}", static_cast<int>(form)).c_str();
    program.write(folder, {.form = form});
    const Program read = Program::read(folder);
    EXPECT_TRUE(check_program(read).good());
    EXPECT_THAT(read.text(), HasSubstr("made by init"));
    test::expect_same(Session(read, test::one_thread()).run(inputs()), expected);
  }
}

TEST_P(Init, has_a_machine_program_of_its_own) {
  const Program program = this->program();
  for (int64_t rank = 0; rank < program.mesh().size(); ++rank) {
    const std::string text = program.machine(rank, {}, {});
    const size_t init = text.find("init, which runs once:\narena "), step = text.find("\nstep:\narena ");
    ASSERT_NE(init, std::string::npos) << text;
    ASSERT_NE(step, std::string::npos) << text;
    EXPECT_NE(text.substr(init, step - init).find(": run "), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, Init, testing::Values("tp=1", "tp=2", "tp=3", "dp=2", "dp=2,tp=2"));

// A written program's init, saved by a tool that keeps no metadata, with an edit.
class EditedInit : public testing::Test {
 protected:
  void SetUp() override {
    const Model model = Model::load(write_model(folder_, kAdapted, 3));
    compile(model, Mesh::parse("tp=2")).write(out());
  }
  std::filesystem::path out() const { return folder_ / "out"; }
  void save(const std::function<void(Graph&)>& edit) const {
    OnnxModel model = import_model(out() / "init_0.onnx");
    ExportOptions options;
    options.value_info = true;
    for (const Value* state : model.graph->values_of(ValueKind::state))
      if (const auto location = external_location(*state))
        options.stored[state->name] = {location->file, location->offset};
    for (const auto& value : model.graph->values()) value->extra.clear();
    edit(*model.graph);
    export_model(model, out() / "init_0.onnx", options);
  }
  static Node* maker(Graph& graph, std::string_view result) { return graph.find(result)->producer; }

  TemporaryFolder folder_;
};

TEST_F(EditedInit, is_refused_until_it_is_accepted) {
  save([](Graph&) {});
  EXPECT_THAT(message_of([&] { Program::read(out()); }), HasSubstr("init_0.onnx"));
  EXPECT_THAT(changed_models(out()), testing::ElementsAre("init_0.onnx"));
  EXPECT_TRUE(accept_changed_models(out()).good());
  EXPECT_TRUE(check_program(Program::read(out())).good());
}

TEST_F(EditedInit, that_computes_something_else_is_not_accepted) {
  save([](Graph& graph) { maker(graph, "adapted")->op_type = "Sub"; });
  EXPECT_FALSE(accept_changed_models(out()).good());
}

TEST_F(EditedInit, that_lacks_a_result_is_refused) {
  save([](Graph& graph) { graph.rename(graph.find("adapted"), "other"); });
  EXPECT_THAT(message_of([&] { Program::read(out(), true); }), HasSubstr("'adapted' is not in the manifest"));
}

TEST_F(EditedInit, that_is_missing_is_an_error) {
  std::filesystem::remove(out() / "init_0.onnx");
  EXPECT_THAT(message_of([&] { Program::read(out()); }), HasSubstr("init_0.onnx"));
}

// w changes, so what depends on it does; v does not.
TEST(InitOfSteps, leaves_what_changes_in_the_step) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(
step (float[4, 8] x) => (float[4, 8] y, float[8, 8] "next.w", float[8, 8] "next.old") <
  float[8, 8] w, float[8, 8] v, float[8, 8] old, float half = {0.5}> {
  u = Mul (w, half)
  t = Mul (v, half)
  a = MatMul (x, u)
  b = MatMul (a, t)
  y = MatMul (b, old)
  "next.w" = Add (w, t)
  "next.old" = Mul (v, v)
})"));
  Plan plan;
  plan.states = {"*=next.*"};
  for (const char* mesh : {"tp=1", "dp=2"}) {
    const Program program = compile(model, Mesh::parse(mesh), plan);
    const std::string text = program.text();
    EXPECT_LT(position(text, "t = Mul"), position(text, "\nstep ("));
    EXPECT_GT(position(text, "u = Mul"), position(text, "\nstep ("));
    EXPECT_LT(position(text, "next.old\" = Mul"), position(text, "\nstep ("));
    program.write(folder / "out");
    Session session(program), each(program, {.keep_all = true}), read(Program::read(folder / "out"));
    EXPECT_EQ(session.states().size(), 2u);
    for (Session* run : {&session, &each, &read})
      for (int step = 0; step < 3; ++step) run->run({{"x", ramp({4, 8})}});
    test::expect_same(session.states(), each.states());
    test::expect_same(session.states(), read.states());
  }
}

// A rank that does not use what it helps to gather gathers it nevertheless.
TEST(InitOfPlaces, leaves_communication_on_all_ranks) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(
placed (float[2, b, 6] x) => (float[2, b, 2] y, float[2, 4] z) <
  float[6, 2] w, float[2, 6] u, float[6, 4] v> {
  p = MatMul (x, w)
  [late] y = Relu (p)
  z = MatMul (u, v)
})"));
  Plan plan;
  plan.places = {{"late=x:0", "place"}};
  plan.annotations = {{"p=[2{x}, -, -]", "annotation"}};
  const Tensors inputs = {{"x", ramp({2, 3, 6})}};
  const Program program = compile(model, Mesh::parse("x=2"), plan);
  EXPECT_THAT(program.text(), HasSubstr("z [2, 4]: [-, -], made by init"));
  EXPECT_TRUE(check_program(program).good());
  test::expect_same(Session(program).run(inputs), Session(compile(model, Mesh())).run(inputs));
}

// Each kind of growth that the pass refuses, and one that it allows.
TEST(InitByBytes, keeps_no_more_than_it_saves) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(
grown (float[1024, 1024] x, float[8, 4] z) => (float[1024, 1024] y, float[8, 4] s) <
  float[1024, 4] a, float[4, 1024] b, float[1024, 1] c, float[4, 4] d,
  constant int64[2] wide = {1, 1024}> {
  product = MatMul (a, b)
  spread = Tile (c, wide)
  n = Add (x, product)
  y = Mul (n, spread)
  small = MatMul (d, d)
  s = MatMul (z, small)
})"));
  const std::string text = compile(model, Mesh()).text();
  const size_t step = position(text, "\ngrown (");
  EXPECT_GT(position(text, "product = MatMul"), step);
  EXPECT_GT(position(text, "spread = Tile"), step);
  EXPECT_LT(position(text, "small = MatMul"), step);
}

}  // namespace
}  // namespace tessera
