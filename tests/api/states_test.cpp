// States that change from run to run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "api/small_model.h"
#include "error_of.h"
#include "tessera/base/float16.h"
#include "tessera/training.h"

namespace tessera {
namespace {

using test::ramp;
using test::TemporaryFolder;
using test::write_model;
using testing::HasSubstr;

// Gradient descent with momentum, in numbers whose sums are exact; `kept` is what w was before the step.
constexpr std::string_view kLearner = R"(
learner (float[4, 8] x, float[4, 6] y) => (float loss, float[8, 6] kept, float[8, 6] "next.w", float[8, 6] "next.m",
                                           float "next.t") <
  float[8, 6] w, float[8, 6] m, float t = {0}, float rate = {0.0625}, float half = {0.5}, float one = {1}> {
  p = MatMul (x, w)
  d = Sub (p, y)
  square = Mul (d, d)
  loss = ReduceSum <keepdims = 0> (square)
  kept = Identity (w)
  xt = Transpose <perm = [1, 0]> (x)
  g = MatMul (xt, d)
  old = Mul (m, half)
  "next.m" = Add (old, g)
  change = Mul ("next.m", rate)
  "next.w" = Sub (w, change)
  "next.t" = Add (t, one)
})";

const std::vector<std::string> kAll = {"*=next.*"};
constexpr int kSteps = 3;

Tensors batch(int64_t step) {
  return {{"x", ramp({4, 8}, step)}, {"y", ramp({4, 6}, 2 * step + 1)}};
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.dims == b.dims && std::memcmp(a.data, b.data, a.bytes) == 0;
}

using test::error_of;

class States : public testing::Test {
 protected:
  Model model(std::string_view text = kLearner) const { return Model::load(write_model(folder_, text, 3)); }

  // The states after each step, one device, each step given the states that the one before gave out.
  static std::vector<Tensors> by_hand(const Model& model) {
    Session session(compile(model.with_states({"w", "m", "t"}), Mesh()));
    std::vector<Tensors> steps;
    for (int i = 0; i < kSteps; ++i) {
      Tensors outputs = session.run(batch(i));
      Tensors& states = steps.emplace_back();
      for (const char* name : {"w", "m", "t"}) states[name] = outputs.at(std::string("next.") + name);
      session.set_states(states);
    }
    return steps;
  }

  TemporaryFolder folder_;
};

struct Split {
  std::string mesh, presets, store;
};

class StatesOn : public States, public testing::WithParamInterface<Split> {
 protected:
  static Plan plan() {
    Plan plan;
    plan.presets = GetParam().presets;
    plan.states = kAll;
    if (!GetParam().store.empty()) plan.storage = {{GetParam().store}};
    return plan;
  }
};

TEST_P(StatesOn, are_what_stepping_by_hand_makes_them) {
  const Model model = this->model();
  const std::vector<Tensors> expected = by_hand(model);
  const Program program = compile(model, Mesh::parse(GetParam().mesh), plan());
  for (bool overlap : {true, false}) {
    Session session(program, {.overlap = overlap});
    Tensor before = session.states().at("w");
    for (int i = 0; i < kSteps; ++i) {
      const Tensors outputs = session.run(batch(i));
      EXPECT_EQ(outputs.size(), 2u) << "next values are not outputs";
      EXPECT_TRUE(same(outputs.at("kept"), before)) << "what reads the old value reads the old value";
      const Tensors states = session.states();
      ASSERT_EQ(states.size(), 3u);
      for (const auto& [name, state] : states) EXPECT_TRUE(same(state, expected[i].at(name))) << name << " step " << i;
      before = states.at("w");
    }
  }
}

int64_t bytes_of(const Program& program, const std::string& name) {
  for (const StateInfo& state : program.states())
    if (state.tensor.name == name) return state.bytes;
  return -1;
}

TEST_P(StatesOn, of_a_written_program_step_alike) {
  const Model model = this->model();
  const std::vector<Tensors> expected = by_hand(model);
  const Program program = compile(model, Mesh::parse(GetParam().mesh), plan());
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for})
    for (Lower lower : {Lower::collectives, Lower::primitives}) {
      const auto folder = folder_.path() / ("written" + std::to_string(static_cast<int>(form)) +
                                            std::to_string(static_cast<int>(lower)));
      SCOPED_TRACE(folder.filename());
      program.write(folder, {.lower = lower, .form = form});
      const Program read = Program::read(folder);
      if (lower == Lower::collectives) {
        for (const StateInfo& state : read.states())
          EXPECT_EQ(state.bytes, bytes_of(program, state.tensor.name)) << state.tensor.name << " is stored as it was";
      }
      Session session(read);
      for (int i = 0; i < kSteps; ++i) {
        EXPECT_EQ(session.run(batch(i)).size(), 2u);
        const Tensors states = session.states();
        ASSERT_EQ(states.size(), 3u);
        for (const auto& [name, state] : states)
          EXPECT_TRUE(same(state, expected[i].at(name))) << name << " step " << i;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Meshes, StatesOn,
                         testing::Values(Split{"", "", ""}, Split{"dp=2", "", ""}, Split{"dp=3", "", ""},
                                         Split{"dp=2", "", "*=[dp,...]"}, Split{"dp=3", "", "*=[dp,...]"},
                                         Split{"dp=2", "", "w=[-,dp]"}, Split{"dp=2,tp=2", "dp", "*=[{dp,tp},...]"},
                                         Split{"tp=3", "", "*=[...,tp]"}, Split{"tp=2", "", "*=[...]"}),
                         [](const auto& info) { return "case" + std::to_string(info.index); });

TEST_F(States, are_stored_as_is_said) {
  Plan plan;
  plan.states = kAll;
  const auto bytes = [](const Program& program) {
    int64_t sum = 0;
    for (const StateInfo& state : program.states()) sum += state.bytes;
    return sum;
  };
  const Program whole = compile(model(), Mesh::parse("dp=4"), plan);
  plan.storage = {{"*=[dp,...]"}};
  const Program split = compile(model(), Mesh::parse("dp=4"), plan);
  constexpr int64_t kMatrices = 2 * 8 * 6 * 4, kCounter = 4;
  EXPECT_EQ(bytes(whole), kMatrices + kCounter);
  EXPECT_EQ(bytes(split), kMatrices / 4 + kCounter) << "the counter has no dimension to split";
  EXPECT_EQ(whole.figures(0).parameter_bytes, kMatrices + kCounter) << "no state needs a second buffer: w has one";
  EXPECT_EQ(split.figures(0).parameter_bytes, kMatrices / 4 + kCounter);
  const auto states = split.states();
  EXPECT_EQ(states.front().tensor.name, "w");
  EXPECT_EQ(states.front().storage, "[8{dp}, -]");
  EXPECT_EQ(states.front().compute.front(), "[-, -]");
  EXPECT_TRUE(states.front().changes);
}

// The order of what reads and writes: each in another way of making the next value.
TEST_F(States, may_take_each_others_values) {
  const Model model = this->model(R"(
swap (float[4] x) => (float[4] sum, float[4] nexta, float[4] nextb, float[4] nextc, float[2, 2] nextd) <
    float[4] a, float[4] b, float[4] c, float[2, 2] d, int64[2] square = {2, 2}> {
  sum = Add (a, b)
  nexta = Identity (b)
  nextb = Add (a, x)
  nextc = Identity (x)
  nextd = Reshape (a, square)
})");
  for (const char* mesh : {"", "dp=2"})
    for (const char* store : {"", "*=[dp,...]"}) {
      if (*mesh == 0 && *store != 0) continue;
      Plan plan;
      plan.states = {"*=next*"};
      if (*store) plan.storage = {{store}};
      Session session(compile(model, Mesh::parse(mesh), plan));
      const Tensor x = ramp({4}, 5);
      Tensors now = session.states();
      for (int i = 0; i < 3; ++i) {
        session.run({{"x", x}});
        const Tensors next = session.states();
        EXPECT_TRUE(same(next.at("a"), now.at("b")));
        for (int64_t e = 0; e < 4; ++e)
          EXPECT_EQ(next.at("b").as<float>()[e], now.at("a").as<float>()[e] + x.as<float>()[e]);
        EXPECT_TRUE(same(next.at("c"), x));
        EXPECT_EQ(std::memcmp(next.at("d").data, now.at("a").data, 16), 0);
        now = next;
      }
    }
}

// One kernel makes both next values; it reads the old value of a after it has made the next one.
TEST_F(States, are_read_before_they_change_within_a_kernel) {
  const Model model = this->model(R"(
pair (float[96] x) => (float[96] nexta, float[96] nextb) <float[96] a, float[96] b> {
  nexta = Add (a, x)
  mixed = Mul (a, x)
  sum = Add (nexta, mixed)
  nextb = Sub (sum, b)
})");
  Plan plan;
  plan.states = {"*=next*"};
  Session session(compile(model, Mesh(), plan));
  const Tensor x = ramp({96}, 5);
  Tensors now = session.states();
  for (int i = 0; i < 3; ++i) {
    session.run({{"x", x}});
    const Tensors next = session.states();
    for (int64_t e = 0; e < 96; ++e) {
      const float a = now.at("a").as<float>()[e], b = now.at("b").as<float>()[e], given = x.as<float>()[e];
      EXPECT_EQ(next.at("a").as<float>()[e], a + given);
      EXPECT_EQ(next.at("b").as<float>()[e], ((a + given) + a * given) - b);
    }
    now = next;
  }
}

TEST_F(States, of_sessions_that_share_them_are_the_same) {
  const Model learner = model();
  const Mesh mesh = Mesh::parse("dp=2");
  Plan plan;
  plan.states = kAll;
  Session training(compile(learner, mesh, plan));
  // What the evaluation takes of the model; w changes, though not by it.
  Session evaluation(compile(learner.with_states({"w"}).with_outputs({"p"}), mesh), {.share_states = &training});
  Session fresh(compile(learner.with_states({"w"}).with_outputs({"p"}), mesh));
  for (int i = 0; i < kSteps; ++i) {
    const Tensors one{{"x", batch(i).at("x")}};
    Tensors states = {{"w", training.states().at("w")}};
    fresh.set_states(states);
    EXPECT_TRUE(same(evaluation.run(batch(i)).at("p"), fresh.run(batch(i)).at("p")));
    training.run(batch(i));
  }
  Plan elsewhere = plan;
  elsewhere.storage = {{"*=[dp,...]"}};
  Session other(compile(learner, mesh, elsewhere), {.share_states = &training});
  EXPECT_THAT(error_of([&] { other.run(batch(0)); }),
              HasSubstr("the programs that share the state 'w' store it in different ways"));
}

TEST_F(States, are_shared_on_one_device) {
  const Model learner = model();
  Plan plan;
  plan.states = kAll;
  const Program step = compile(learner, Mesh::parse("dp=2"), plan);
  const std::vector<std::string> devices{"cpu", "simulated"};
  for (const std::string& device : devices) {
    Session training(step, {.device = device});
    training.run(batch(0));
    for (const std::string& other : devices) {
      if (other != device) {
        EXPECT_THAT(error_of([&] { Session(step, {.device = other, .share_states = &training}); }),
                    HasSubstr("the states are on the device '" + device + "', but the session is for '" + other + "'"));
        continue;
      }
      Session second(step, {.device = other, .share_states = &training});
      second.run(batch(1));
      for (const auto& [name, state] : training.states()) EXPECT_TRUE(same(state, second.states().at(name))) << name;
    }
  }
}

TEST_F(States, are_shared_on_one_mesh_where_they_change_in_both) {
  const Model learner = model();
  Plan plan;
  plan.states = kAll;
  Session training(compile(learner, Mesh::parse("dp=2,tp=2"), plan));
  const auto joining = [&](const Model& model, const char* mesh) {
    return error_of([&] { Session(compile(model, Mesh::parse(mesh)), {.share_states = &training}); });
  };
  for (const char* mesh : {"tp=2,dp=2", "dp=4", ""})
    EXPECT_THAT(joining(learner.with_states({"w"}).with_outputs({"p"}), mesh),
                HasSubstr("share states on one mesh only"))
        << mesh;
  EXPECT_THAT(joining(learner.with_outputs({"p"}), "dp=2,tp=2"),
              HasSubstr("the state 'w' changes in one of the programs that share it, but not in the other"));
}

// A state that another program changes is not a constant of a written one.
TEST_F(States, that_others_change_change_in_written_programs) {
  const Model learner = model();
  const Program evaluation = compile(learner.with_states({"w"}).with_outputs({"p"}), Mesh::parse("tp=2"));
  const Tensors x = batch(1), other = {{"w", ramp({8, 6}, 5)}};
  Session reference(evaluation);
  reference.set_states(other);
  const Tensor wanted = reference.run(x).at("p");
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for}) {
    const auto folder = folder_.path() / ("evaluation" + std::to_string(static_cast<int>(form)));
    evaluation.write(folder, {.form = form});
    Session session(Program::read(folder));
    session.set_states(other);
    EXPECT_TRUE(same(session.run(x).at("p"), wanted));
  }
}

// Values of a step that are kept to be compared are those that its nodes saw.
TEST_F(States, are_kept_as_the_step_read_them) {
  const Model model = this->model(R"(
kept (float[4] x) => (float[4] y, float[4] nextw) <float[2, 2] v, float[4] w, int64[1] flat = {4}> {
  seen = Reshape (w, flat)
  y = Add (seen, x)
  nextw = Mul (seen, x)
})");
  Plan plan;
  plan.states = {"w=nextw"};
  Session session(compile(model, Mesh(), plan), {.keep_all = true});
  const Tensor before = session.states().at("w");
  session.run({{"x", ramp({4}, 5)}});
  for (const auto& kept : session.kept()) {
    if (kept.name == "seen") {
      EXPECT_TRUE(same(kept.value, before));
    }
  }
  EXPECT_FALSE(same(session.states().at("w"), before)) << "it has stepped";
}

TEST_F(States, of_every_type_and_extent_step_and_are_saved) {
  const Model model = this->model(R"(
types (float[4] x, float[n] s) => (float[4] y, int64[3] nexti, bfloat16[4] nextb, float[0, 3] nextz, bool[4] nextq,
                         float[4] nexta, int64[1] nextn) <
    int64[3] i = {1, 2, 3}, constant bfloat16[4] b = {1.0, 2.0, 3.0, 4.0}, float[0, 3] z = {}, bool[4] q = {1, 0, 0, 1},
    float[4] a, float[4] c, int64[1] n = {0}, int64[3] one = {1, 1, 1}> {
  y = Identity (x)
  nexti = Add (i, one)
  nextb = Add (b, b)
  nextz = Identity (z)
  nextq = Not (q)
  nexta = Add (c, x)
  nextn = Shape (s)
})");
  Plan plan;
  plan.states = {"i=nexti", "b=nextb", "z=nextz", "q=nextq", "a=nexta", "c=nexta", "n=nextn"};
  plan.presets = "dp";
  for (const char* store : {"", "*=[dp,...]"}) {
    if (*store) plan.storage = {{store}};
    const Program program = compile(model, Mesh::parse("dp=2"), plan);
    const auto folder = folder_.path() / (std::string("types") + (*store ? "1" : "0"));
    program.write(folder);
    for (const Program& form : {program, Program::read(folder)}) {
      Session session(form);
      const Tensors before = session.states();
      session.run({{"x", ramp({4}, 2)}, {"s", ramp({6})}});
      const Tensors after = session.states();
      EXPECT_EQ(after.at("i").as<int64_t>()[2], 4);
      EXPECT_EQ(static_cast<float>(after.at("b").as<BFloat16>()[3]),
                2 * static_cast<float>(before.at("b").as<BFloat16>()[3]));
      EXPECT_EQ(after.at("z").dims, (Dims{0, 3}));
      EXPECT_EQ(after.at("q").as<uint8_t>()[1], 1);
      EXPECT_TRUE(same(after.at("a"), after.at("c"))) << "one next value of two states";
      EXPECT_EQ(after.at("n").as<int64_t>()[0], 6);
      session.set_states(before);
      for (const auto& [name, state] : session.states()) EXPECT_TRUE(same(state, before.at(name))) << name;
    }
  }
}

TEST_F(States, are_saved_by_checkpoints_that_outlive_the_session) {
  const Program program = compile(model().with_states(kAll), Mesh::parse("tp=2"));
  Checkpoints checkpoints(folder_ / "saved", 0);
  Tensors stepped;
  {
    Session session(program);
    session.run(batch(0));
    stepped = session.states();
    EXPECT_EQ(checkpoints.save(session, {.step = 1}), "");
  }
  EXPECT_EQ(checkpoints.finish(), "");
  Session resumed(program);
  Checkpoints::load(resumed, *Checkpoints::latest(folder_ / "saved"));
  for (const auto& [name, value] : resumed.states()) EXPECT_TRUE(same(value, stepped.at(name))) << name;
}

TEST_F(States, live_where_their_nodes_are_placed) {
  const Model model = this->model();
  const std::vector<Tensors> expected = by_hand(model);
  Plan plan;
  plan.states = kAll;
  for (const char* place : {"p=pp:1", "next.w=pp:0", "next.m=pp:1"}) plan.places.push_back({place});
  plan.presets = "dp:tp";
  Session session(compile(model, Mesh::parse("pp=2,tp=2"), plan));
  for (int i = 0; i < kSteps; ++i) {
    session.run(batch(i));
    for (const auto& [name, state] : session.states()) EXPECT_TRUE(same(state, expected[i].at(name))) << name;
  }
}

TEST_F(States, stay_as_they_are_if_a_step_fails) {
  const Model model = this->model(R"(
count (int64[2] ids) => (float[2, 3] rows, float[5, 3] nextt) <float[5, 3] t, float one = {1}> {
  rows = Gather (t, ids)
  nextt = Add (t, one)
})");
  Plan plan;
  plan.states = {"*=next*"};
  for (const auto& [mesh, device] : std::vector<std::pair<const char*, const char*>>{
           {"", "cpu"}, {"tp=2", "cpu"}, {"", "simulated"}, {"tp=2", "simulated"}}) {
    Session session(compile(model, Mesh::parse(mesh), plan), {.device = device});
    const auto ids = [](int64_t second) {
      return Tensors{{"ids", Tensor::of(DType::int64, {2}, std::vector<int64_t>{1, second})}};
    };
    session.run(ids(4));
    const Tensors before = session.states();
    EXPECT_ANY_THROW(session.run(ids(5)));
    EXPECT_TRUE(same(session.states().at("t"), before.at("t")));
    session.run(ids(0));
    EXPECT_EQ(session.states().at("t").as<float>()[0], before.at("t").as<float>()[0] + 1);
  }
}

// Where ranks had begun to write over states, it says so until all are given anew.
class TornStates : public States, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(OnDevices, TornStates, testing::Values("cpu", "simulated"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(TornStates, are_not_used) {
  const Model model = this->model(R"(
late (float[2] x, int64[1] at) => (float[1] last, float[2] other, float[5] nextt, float[2] nextu) <
    float[5] t, float[2] u, float one = {1}> {
  other = Mul (u, x)
  nextu = Add (u, one)
  nextt = Add (t, one)
  last = Gather (nextt, at)
})");
  Plan plan;
  plan.states = {"*=next*"};
  Session session(compile(model, Mesh(), plan), {.device = GetParam()});
  const auto at = [](int64_t index) {
    return Tensors{{"x", ramp({2})}, {"at", Tensor::of(DType::int64, {1}, std::vector<int64_t>{index})}};
  };
  const Tensors before = session.states();
  session.run(at(4));
  EXPECT_ANY_THROW(session.run(at(5)));
  EXPECT_THAT(error_of([&] { session.run(at(4)); }), HasSubstr("load all states again"));
  // Not by an evaluation that has some of them only.
  Session evaluation(compile(model.with_states({"u"}).with_outputs({"other"}), Mesh()),
                     {.device = GetParam(), .share_states = &session});
  evaluation.set_states({{"u", before.at("u")}});
  EXPECT_THAT(error_of([&] { session.run(at(4)); }), HasSubstr("('t' has not been loaded yet)"));
  session.set_states(before);
  session.run(at(4));
  EXPECT_EQ(session.states().at("t").as<float>()[0], before.at("t").as<float>()[0] + 1);
}

TEST_F(States, that_cannot_be_are_refused) {
  const Model model = this->model();
  const auto pairing = [&](std::vector<std::string> patterns) {
    return error_of([&] { static_cast<void>(model.with_states(patterns)); });
  };
  EXPECT_THAT(pairing({"*=*.*"}),
              HasSubstr("[state] '*=*.*' is not a pair of a state and its next value; write STATE=NEXT"));
  EXPECT_THAT(pairing({"w=next.*"}), HasSubstr("is not a pair"));
  EXPECT_THAT(pairing({"=next.w"}), HasSubstr("is not a pair"));
  EXPECT_THAT(pairing({"ww=next.w"}), HasSubstr("'ww' matches no initializer of the model; did you mean 'w'?"));
  EXPECT_THAT(
      pairing({"*=after.*"}),
      HasSubstr("'*=after.*' pairs no initializer with an output: 'w', for example, would need the output 'after.w', "
                "but the model's outputs are: 'loss'"));
  EXPECT_THAT(pairing({"w=next.t"}),
              HasSubstr("the state 'w' is float32 [8, 6], but its next value 'next.t' is float32"));
  EXPECT_THAT(pairing({"w=next.w", "w=next.m"}), HasSubstr("'w' has two next values, 'next.w' and 'next.m'; name one"));
  const auto storing = [&](const std::string& store) {
    Plan plan;
    plan.states = kAll;
    plan.storage = {{store}};
    return error_of([&] { static_cast<void>(compile(model, Mesh::parse("dp=2"), plan)); });
  };
  EXPECT_THAT(storing("v=[dp,-]"), HasSubstr("[store] 'v' matches no state or parameter of the model"));
  EXPECT_THAT(storing("*=[dp,-,-,...]"), HasSubstr("matches states, but none with 3 dimensions or more"));
  EXPECT_THAT(storing("w=[dp]"), HasSubstr("'w'"));
  EXPECT_THAT(storing("w=[xx,-]"), HasSubstr("xx"));
  EXPECT_THAT(storing("w=[dp,-] partial(sum:dp)"), HasSubstr("'w"));
  Plan plan;
  plan.states = kAll;
  Session session(compile(model, Mesh::parse("dp=2"), plan));
  const Tensors before = session.states();
  EXPECT_THAT(error_of([&] {
                session.set_states({{"u", ramp({8, 6})}});
              }),
              HasSubstr("[state] the program has no state 'u' that changes; it has: 'm', 't', 'w'"));
  EXPECT_THAT(error_of([&] {
                session.set_states({{"w", ramp({8, 6})}, {"m", ramp({6, 8})}});
              }),
              HasSubstr("the state 'm' is float32 [8, 6], but the array is float32 [6, 8]"));
  EXPECT_TRUE(same(session.states().at("w"), before.at("w"))) << "none has changed";
}

TEST_F(States, are_part_of_a_plan_and_its_file) {
  const Plan plan = Plan::from_json(R"({"mesh": "dp=2", "states": ["*=next.*"], "store": ["*=[dp,...]"]})");
  EXPECT_EQ(plan.states, kAll);
  EXPECT_EQ(plan.storage.front().text, "*=[dp,...]");
  EXPECT_EQ(Plan::from_json(plan.to_json()).storage.front().text, "*=[dp,...]");
  const auto path = folder_ / "annotated.onnx";
  model().write_annotated(path, plan);
  const Model annotated = Model::load(path);
  Session session(compile(annotated, Mesh::parse("dp=2"), annotated.plan()));
  session.run(batch(0));
  EXPECT_TRUE(same(session.states().at("w"), by_hand(model()).front().at("w")));
}

}  // namespace
}  // namespace tessera
