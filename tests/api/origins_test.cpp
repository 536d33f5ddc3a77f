// Parameters that change and that rewriting divides: a projection to queries, keys and values of unequal widths becomes
// three, with their gradients, moments and updates, and is set, read, saved and shared as what the model has.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "api/grouped_query_step.h"
#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/check.h"

namespace tessera {
namespace {

using test::TemporaryFolder;
using test::write_model;
using testing::HasSubstr;

/// Each element a whole number from -1 to 1.
Tensor whole_numbers(Dims dims, int64_t seed) {
  Tensor tensor = Tensor::zeros(DType::float32, std::move(dims));
  auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
  uint64_t state = static_cast<uint64_t>(seed) * 2654435761u + 12345;
  for (int64_t i = 0; i < tensor.count(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    elements[i] = static_cast<float>((state >> 33) % 3) - 1;
  }
  return tensor;
}

Tensors batch_of(int64_t step, int64_t size = 2, int64_t length = 4) {
  const Dims dims = {size, length, 12};
  return {{"x", whole_numbers(dims, 2 * step)}, {"y", whole_numbers(dims, 2 * step + 1)}};
}

bool same_tensor(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.dims == b.dims && std::memcmp(a.data, b.data, a.bytes) == 0;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return error.what();
  }
  return "no error";
}

Plan stepped_plan(std::string presets = "") {
  Plan plan;
  plan.presets = std::move(presets);
  plan.states = {"*=next.*"};
  return plan;
}

StateInfo info_of(const Program& program, std::string_view name) {
  for (const StateInfo& state : program.states())
    if (state.tensor.name == name) return state;
  return {};
}

class Origins : public testing::Test {
 protected:
  Model exact() const { return Model::load(write_model(folder_, test::exact_step(), 3)); }
  Model attention() const { return Model::load(write_model(folder_, test::attention_step(), 3)); }

  // Whole numbers for all states that change.
  static Tensors beginning(const Program& program) {
    Tensors states;
    int64_t seed = 100;
    for (const StateInfo& state : program.states()) {
      if (!state.changes) continue;
      Dims dims;
      for (const std::string& extent : state.tensor.shape) dims.push_back(std::stoll(extent));
      states[state.tensor.name] = whole_numbers(dims, ++seed);
    }
    return states;
  }

  // The same program, but with the weight whole.
  static Program undivided(const Model& model, const std::string& mesh) {
    Plan whole = stepped_plan();
    whole.storage = {{"w=[-,-]"}};
    return compile(model, Mesh::parse(mesh), whole);
  }

  TemporaryFolder folder_;
};

constexpr int kExactSteps = 4;

TEST_F(Origins, divide_a_weight_with_its_moments_and_updates) {
  const Program program = compile(exact(), Mesh::parse("tp=2"), stepped_plan());
  for (const char* name : {"w", "mw", "b", "mb"}) {
    const StateInfo state = info_of(program, name);
    ASSERT_EQ(state.pieces.size(), 3u) << name;
    EXPECT_TRUE(state.changes);
    EXPECT_EQ(state.tensor.shape.back(), "24");
    EXPECT_EQ(state.pieces[0].tensor.shape.back(), "12");
    EXPECT_EQ(state.pieces[2].begin.back(), 18);
  }
  EXPECT_EQ(info_of(program, "w").bytes, 12 * 24 * 4 / 2);
  EXPECT_EQ(info_of(program, "mw").bytes, 12 * 24 * 4 / 2);
  EXPECT_TRUE(info_of(program, "o").pieces.empty());
  EXPECT_TRUE(info_of(undivided(exact(), "tp=2"), "w").pieces.empty());
}

// Each rank has its heads of queries, keys and values, forward and backward.
TEST_F(Origins, are_neither_gathered_nor_are_their_gradients) {
  for (const Model& model : {exact(), attention()}) {
    const Program program = compile(model, Mesh::parse("tp=2"), stepped_plan("megatron"));
    for (const CollectiveSummary& entry : program.summary().collectives) {
      EXPECT_EQ(entry.kind, "all_reduce");
      EXPECT_EQ(entry.count, 3) << "out, dhidden and the squares";
    }
    for (const StateInfo& piece : info_of(program, "w").pieces) {
      EXPECT_THAT(piece.storage, HasSubstr("tp"));
      EXPECT_EQ(piece.compute, std::vector<std::string>{piece.storage});
    }
  }
}

class OriginsOn : public Origins, public testing::WithParamInterface<std::array<std::string, 3>> {
 protected:
  Program compiled(const Model& model) const {
    Plan own = stepped_plan(GetParam()[1]);
    if (!GetParam()[2].empty()) own.storage = {{GetParam()[2]}};
    return compile(model, Mesh::parse(GetParam()[0]), own);
  }
};

TEST_P(OriginsOn, leave_the_bits_of_a_whole_weight) {
  const Model model = exact();
  const Program one = undivided(model, ""), many = compiled(model);
  ASSERT_EQ(info_of(many, "w").pieces.size(), 3u);
  const Tensors begin = beginning(one);
  Session expected(one), session(many);
  test::expect_same(session.states(), expected.states());
  expected.set_states(begin);
  session.set_states(begin);
  test::expect_same(session.states(), begin);
  for (int i = 0; i < kExactSteps; ++i) {
    test::expect_same(session.run(batch_of(i)), expected.run(batch_of(i)));
    test::expect_same(session.states(), expected.states());
  }
  // Another mesh goes on from there.
  Session other(compile(model, Mesh::parse("tp=3"), stepped_plan()));
  other.set_states(session.states());
  test::expect_same(other.run(batch_of(9)), expected.run(batch_of(9)));
  test::expect_same(other.states(), expected.states());
}

TEST_P(OriginsOn, give_the_losses_of_one_device_over_twenty_steps) {
  const Model model = attention();
  Session expected(undivided(model, "")), session(compiled(model));
  Tensors begin = expected.states();
  for (auto& [name, state] : begin)
    if (name.size() == 2) state = Tensor::zeros(state.dtype, state.dims);  // moments
  expected.set_states(begin);
  session.set_states(begin);
  for (int i = 0; i < 20; ++i) {
    const float wanted = expected.run(batch_of(i)).at("loss").as<float>()[0];
    EXPECT_NEAR(session.run(batch_of(i)).at("loss").as<float>()[0], wanted, 2e-5 * std::abs(wanted)) << "step " << i;
  }
  const Tensors wanted = expected.states();
  for (const auto& [name, state] : session.states())
    for (int64_t i = 0; i < state.count(); ++i)
      ASSERT_NEAR(state.as<float>()[i], wanted.at(name).as<float>()[i], 1e-3) << name << " " << i;
}

TEST_P(OriginsOn, are_part_of_written_programs) {
  const Model model = exact();
  const Program many = compiled(model);
  Session expected(many);
  const Tensors begin = beginning(many);
  expected.set_states(begin);
  std::vector<Tensors> outputs, states;
  for (int i = 0; i < kExactSteps; ++i) {
    outputs.push_back(expected.run(batch_of(i)));
    states.push_back(expected.states());
  }
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for})
    for (Lower lower : {Lower::collectives, Lower::primitives}) {
      const auto folder = folder_.path() / fmt::format("{}{}", static_cast<int>(form), static_cast<int>(lower));
      SCOPED_TRACE(folder.filename());
      many.write(folder, {.lower = lower, .form = form});
      const Program read = Program::read(folder);
      EXPECT_TRUE(check_program(read).good());
      EXPECT_EQ(info_of(read, "w").pieces.size(), 3u);
      Session session(read);
      session.set_states(begin);
      for (int i = 0; i < kExactSteps; ++i) {
        test::expect_same(session.run(batch_of(i)), outputs[i]);
        test::expect_same(session.states(), states[i]);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Meshes, OriginsOn,
                         testing::ValuesIn(std::vector<std::array<std::string, 3>>{
                             {"", "", ""},
                             {"tp=2", "megatron", ""},
                             {"tp=3", "", ""},
                             {"dp=2", "", ""},
                             {"dp=2", "", "*=[dp,...]"},
                             {"dp=2,tp=2", "", ""},
                             {"dp=2,tp=2", "dp+megatron", "*=[dp,...]"}}));

TEST_F(Origins, are_shared_by_a_step_and_its_evaluation) {
  const Model model = exact();
  const Mesh mesh = Mesh::parse("tp=2");
  Plan own = stepped_plan(), others;
  own.storage = others.storage = {{"*=[...,tp]"}};
  Session training(compile(model, mesh, own));
  const Model forward = model.with_states({"e", "w", "b", "o"}).with_outputs({"out"});
  Session evaluation(compile(forward, mesh, others), {.share_states = &training});
  Session fresh(compile(forward, Mesh()));
  for (int i = 0; i < kExactSteps; ++i) {
    Tensors states;
    const Tensors all = training.states();
    for (const auto& [name, state] : evaluation.states()) states[name] = all.at(name);
    test::expect_same(evaluation.states(), states);
    fresh.set_states(states);
    test::expect_same(evaluation.run(batch_of(i)), fresh.run(batch_of(i)));
    training.run(batch_of(i));
  }
  // A part of it knows all pieces, too.
  Session part(compile(model.with_states({"e", "w", "b"}).with_outputs({"qh"}), mesh, others),
               {.share_states = &training});
  part.run(batch_of(0));
  EXPECT_TRUE(same_tensor(part.states().at("w"), training.states().at("w")));
}

// The programs for sizes of 1 have the same pieces.
TEST_F(Origins, are_those_of_all_sizes) {
  const Model model = exact();
  Session expected(undivided(model, "")), session(compile(model, Mesh::parse("tp=2"), stepped_plan()));
  const Tensors begin = expected.states();
  session.set_states(begin);
  int step = 0;
  for (const auto& [size, length] : std::vector<std::pair<int, int>>{{2, 4}, {1, 4}, {2, 1}, {1, 1}, {3, 2}}) {
    test::expect_same(session.run(batch_of(step, size, length)), expected.run(batch_of(step, size, length)));
    test::expect_same(session.states(), expected.states());
    ++step;
  }
}

TEST_F(Origins, are_shared_only_in_the_same_pieces) {
  const Model model = exact();
  const Mesh mesh = Mesh::parse("tp=2");
  Session training(compile(model, mesh, stepped_plan()));
  const Model forward = model.with_states({"e", "w", "b", "o"}).with_outputs({"out"});
  Plan whole;
  whole.storage = {{"w=[-,-]"}};
  EXPECT_THAT(refusal_of([&] { Session(compile(forward, mesh, whole), {.share_states = &training}); }),
              HasSubstr("the programs that share the state 'b' hold it in different ways, one float32 [24] in pieces "
                        "[12] at [0], [6] at [12], [6] at [18], the other float32 [24]; name it"));
  EXPECT_THAT(refusal_of([&] { Session(compile(model.with_outputs({"out"}), mesh), {.share_states = &training}); }),
              HasSubstr("changes in one of the programs that share it, but not in the other"));
  EXPECT_THAT(refusal_of([&] {
                training.set_states({{"w.0", Tensor::zeros(DType::float32, {12, 12})}});
              }),
              HasSubstr("the program has no state 'w.0' that changes; it has: 'b', 'e', 'mb', 'me', 'mo', 'mw', 'o', "
                        "'t', 'w'"));
  EXPECT_THAT(refusal_of([&] {
                training.set_states({{"w", Tensor::zeros(DType::float32, {12, 12})}});
              }),
              HasSubstr("the state 'w' is float32 [12, 24], but the array is float32 [12, 12]"));
}

// What needs the weight whole keeps it so, and gives the same.
TEST_F(Origins, need_nobody_that_reads_the_whole) {
  std::string text = test::exact_step();
  const std::string update = "\"next.w\" = Sub (w, move_w)";
  ASSERT_NE(text.find(update), std::string::npos);
  text.replace(text.find(update), update.size(),
               "running = CumSum (move_w, one_axis)\n  \"next.w\" = Sub (w, running)");
  text.insert(text.find("float t = {0}"), "int64 one_axis = {1}, ");
  const Model model = Model::load(write_model(folder_, text, 3));
  const Program program = compile(model, Mesh::parse("tp=2"), stepped_plan());
  EXPECT_TRUE(info_of(program, "w").pieces.empty());
  Session expected(compile(model, Mesh(), stepped_plan())), session(program);
  const Tensors begin = beginning(program);
  expected.set_states(begin);
  session.set_states(begin);
  for (int i = 0; i < 2; ++i) test::expect_same(session.run(batch_of(i)), expected.run(batch_of(i)));
  test::expect_same(session.states(), expected.states());
  // An evaluation of the same states keeps it whole as well, though it would divide it.
  CompileOptions shares;
  shares.sharing = program;
  const Model forward = model.with_states({"e", "w", "b", "o"}).with_outputs({"out"});
  const Program evaluation = compile(forward, program.mesh(), {}, shares);
  EXPECT_FALSE(info_of(compile(forward, program.mesh()), "w").pieces.empty());
  EXPECT_TRUE(info_of(evaluation, "w").pieces.empty());
  EXPECT_NO_THROW(Session(evaluation, {.share_states = &session}).run(batch_of(0)));
}

// An output that is the weight before the step is put together again.
TEST_F(Origins, are_put_together_for_outputs) {
  const Model model = exact();
  const Model kept = Model::load(model.path()).with_outputs({"loss", "gw", "next.w", "next.mw", "next.b", "next.mb"});
  Plan own;
  own.states = {"w=next.w", "mw=next.mw", "b=next.b", "mb=next.mb"};
  const Program program = compile(kept, Mesh::parse("tp=2"), own);
  EXPECT_EQ(info_of(program, "w").pieces.size(), 3u);
  Session expected(compile(kept, Mesh(), own)), session(program);
  test::expect_same(session.run(batch_of(0)), expected.run(batch_of(0)));
  test::expect_same(session.states(), expected.states());
}

}  // namespace
}  // namespace tessera
