// If, Loop and Scan through the public API: alone and split, in every form of a written program, against the answers of
// one rank, and of ONNX Runtime for an export of PyTorch's scan, while_loop and cond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/base/error.h"
#include "tessera/check.h"
#include "tessera/io/npz.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string model_of(std::string_view graph) {
  return "<ir_version: 10, opset_import: [\"\" : 21]>" + std::string(graph);
}

// Sums stay small integers, so that their order does not matter.
const std::string kRecurrence = model_of(R"(
g (int64 n, float[b, 8] x) => (float[b, 8] y) <float[8, 8] w> {
  y = Loop <body = body (int64 i, bool c, float[b, 8] h) => (bool c2, float[b, 8] h2) {
    p = MatMul (h, w)
    four = Constant <value = float {4}> ()
    q = Mul (p, four)
    five = Constant <value = float {5}> ()
    h2 = Mod <fmod = 1> (q, five)
    c2 = Identity (c)
  }> (n, "", x)
})");

const std::string kWhile = model_of(R"(
g (float[b, 8] x, float limit) => (float[b, 8] y, int64 count) {
  yes = Constant <value = bool {1}> ()
  zero = Constant <value = int64 {0}> ()
  y, count = Loop <body = body (int64 i, bool c, float[b, 8] v, int64 k) => (bool more, float[b, 8] v2, int64 k2) {
    v2 = Add (v, v)
    size = ReduceSum <keepdims = 0> (v2)
    more = Less (size, limit)
    one = Constant <value = int64 {1}> ()
    k2 = Add (k, one)
  }> ("", yes, x, zero)
})");

const std::string kScan = model_of(R"(
g (float[b, 8] start, float[t, b, 8] x) => (float[b, 8] y, float[t, b, 8] all) <float[8, 8] w> {
  y, all = Scan <num_scan_inputs = 1, scan_output_directions = [1],
      body = body (float[b, 8] h, float[b, 8] row) => (float[b, 8] h2, float[b, 8] out) {
    p = MatMul (h, w)
    four = Constant <value = float {4}> ()
    q = Mul (p, four)
    s = Add (q, row)
    five = Constant <value = float {5}> ()
    h2 = Mod <fmod = 1> (s, five)
    out = Neg (h2)
  }> (start, x)
})");

// In odd iterations a loop in a branch.
const std::string kNested = model_of(R"(
g (int64 m, float[b, 8] x) => (float[b, 8] y, float[40, b, 8] rows) <float[8, 8] w> {
  n = Constant <value = int64 {40}> ()
  y, rows = Loop <body = body (int64 i, bool c, float[b, 8] v) => (bool c2, float[b, 8] v2, float[b, 8] r) {
    two = Constant <value = int64 {2}> ()
    one = Constant <value = int64 {1}> ()
    rest = Mod (i, two)
    odd = Equal (rest, one)
    v2 = If <then_branch = then () => (float[b, 8] a) {
      a = Loop <body = inner (int64 j, bool d, float[b, 8] u) => (bool d2, float[b, 8] u2) {
        p = MatMul (u, w)
        four = Constant <value = float {4}> ()
        q = Mul (p, four)
        seven = Constant <value = float {7}> ()
        u2 = Mod <fmod = 1> (q, seven)
        d2 = Identity (d)
      }> (m, "", v)
    }, else_branch = otherwise () => (float[b, 8] e) {
      e = Add (v, x)
    }> (odd)
    r = Neg (v2)
    c2 = Identity (c)
  }> (n, "", x)
})");

// Split over its units, the RNN is a loop in a branch in a loop.
const std::string kRecurrenceInside = model_of(R"(
g (int64 n, float[2, b, 8] x) => (float[2, b, 8] y) <float[1, 8, 8] w, float[1, 8, 8] r> {
  y = Loop <body = body (int64 i, bool c, float[2, b, 8] v) => (bool c2, float[2, b, 8] v2) {
    two = Constant <value = int64 {2}> ()
    odd = Mod (i, two)
    is_odd = Cast <to = 9> (odd)
    s = If <then_branch = a () => (float[2, b, 8] d) {
      all = RNN <hidden_size = 8, activations = ["Relu"]> (v, w, r)
      one = Constant <value_ints = [1]> ()
      d = Squeeze (all, one)
    }, else_branch = o () => (float[2, b, 8] e) {
      back = RNN <hidden_size = 8, direction = "reverse", activations = ["Relu"]> (x, w, r)
      direction = Constant <value_ints = [1]> ()
      f = Squeeze (back, direction)
      e = Add (f, v)
    }> (is_odd)
    five = Constant <value = float {5}> ()
    v2 = Mod <fmod = 1> (s, five)
    c2 = Identity (c)
  }> (n, "", x)
})");

struct Case {
  const char* name;
  const std::string* text;
  Tensors inputs;
  std::vector<const char*> annotations;  ///< each one is a run
  friend std::ostream& operator<<(std::ostream& stream, const Case& which) { return stream << which.name; }
};

Tensor integers(Dims dims, int64_t below) {
  Tensor tensor = Tensor::zeros(DType::float32, std::move(dims));
  auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.count(); ++i) elements[i] = static_cast<float>((i * 7 + 3) % below + 1);
  return tensor;
}

Tensor number(int64_t value) {
  return Tensor::of<int64_t>(DType::int64, {}, {value});
}

std::vector<Case> cases() {
  return {
      {"Loop",
       &kRecurrence,
       {{"n", number(9)}, {"x", integers({6, 8}, 5)}},
       {"x=[tp,-]", "w=[tp,-]", "w=[-,tp]", "y=[-,tp]"}},
      {"NoIteration", &kRecurrence, {{"n", number(0)}, {"x", integers({6, 8}, 5)}}, {"x=[tp,-]", "w=[tp,-]"}},
      {"While",
       &kWhile,
       {{"x", integers({6, 8}, 5)}, {"limit", Tensor::of<float>(DType::float32, {}, {9000})}},
       {"x=[tp,-]", "x=[-,tp]"}},
      {"Scan",
       &kScan,
       {{"start", integers({6, 8}, 5)}, {"x", integers({11, 6, 8}, 4)}},
       {"x=[-,tp,-]", "w=[tp,-]", "all=[-,-,tp]", "x=[tp,-,-]"}},
      {"RecurrenceInside",
       &kRecurrenceInside,
       {{"n", number(4)}, {"x", integers({2, 6, 8}, 5)}},
       {"w=[-,tp,-]", "r=[-,tp,-]", "x=[-,tp,-]"}},
      {"Nested", &kNested, {{"m", number(3)}, {"x", integers({6, 8}, 3)}}, {"x=[tp,-]", "w=[tp,-]", "w=[-,tp]"}},
  };
}

class ControlFlow : public testing::TestWithParam<Case> {
 protected:
  Plan plan(const char* annotation) const {
    Plan plan;
    plan.annotations = {{annotation, "annotation"}};
    return plan;
  }
  Model model() { return Model::load(write_model(folder_, *GetParam().text, 3)); }

  TemporaryFolder folder_;
};

TEST_P(ControlFlow, GivesTheSameOnEveryMesh) {
  const Model model = this->model();
  const Tensors expected = Session(compile(model, Mesh(), {}), one_thread()).run(GetParam().inputs);
  for (const char* annotation : GetParam().annotations)
    for (const char* mesh : {"tp=2", "tp=3", "dp=2,tp=2"}) {
      SCOPED_TRACE(testing::Message() << annotation << " on " << mesh);
      const Program program = compile(model, Mesh::parse(mesh), plan(annotation));
      const CheckReport report = check_program(program);
      ASSERT_TRUE(report.good()) << report.findings.front().message;
      expect_same(Session(program, one_thread()).run(GetParam().inputs), expected);
    }
}

TEST_P(ControlFlow, IsWrittenProvedAndReadInEveryForm) {
  const Model model = this->model();
  const Tensors expected = Session(compile(model, Mesh(), {}), one_thread()).run(GetParam().inputs);
  for (const char* annotation : GetParam().annotations) {
    const Program program = compile(model, Mesh::parse("tp=2"), plan(annotation));
    for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for})
      for (Lower lower : {Lower::collectives, Lower::primitives})
        for (Order order : {Order::tokens, Order::position}) {
          SCOPED_TRACE(testing::Message() << annotation << ", form " << static_cast<int>(form) << ", lower "
                                          << static_cast<int>(lower) << ", order " << static_cast<int>(order));
          WriteOptions options;
          options.form = form;
          options.lower = lower;
          options.order = order;
          program.write(folder_ / "out", options);
          const Program read = Program::read(folder_ / "out");
          const CheckReport report = check_program(read);
          ASSERT_TRUE(report.good()) << report.findings.front().message;
          expect_same(Session(read, one_thread()).run(GetParam().inputs), expected);
        }
  }
}

// Groups that nothing connects are in different iterations while the proof follows them.
TEST_P(ControlFlow, IsProvedMessageByMessageOnSeveralAxes) {
  const Model model = this->model();
  const Tensors expected = Session(compile(model, Mesh(), {}), one_thread()).run(GetParam().inputs);
  WriteOptions options;
  options.form = Form::spmd;
  options.lower = Lower::primitives;
  for (const char* annotation : GetParam().annotations) {
    SCOPED_TRACE(annotation);
    compile(model, Mesh::parse("dp=2,tp=2"), plan(annotation)).write(folder_ / "out", options);
    const Program read = Program::read(folder_ / "out");
    const CheckReport report = check_program(read);
    ASSERT_TRUE(report.good()) << report.findings.front().message;
    expect_same(Session(read, one_thread()).run(GetParam().inputs), expected);
  }
}

TEST_P(ControlFlow, RunsOnADeviceOfItsOwn) {
  SessionOptions options = one_thread();
  options.device = "simulated";
  const Model model = this->model();
  const Tensors expected = Session(compile(model, Mesh(), {}), one_thread()).run(GetParam().inputs);
  const Program program = compile(model, Mesh::parse("tp=2"), plan(GetParam().annotations.back()));
  expect_same(Session(program, options).run(GetParam().inputs), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, ControlFlow, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// 10,000 iterations take no more nodes and no more memory than 100.
TEST(LongLoops, TakeTheSpaceOfOneIteration) {
  const auto text = [](int64_t trips) {
    return model_of("g (float[256] x) => (float[256] y) { n = Constant <value = int64 {" + std::to_string(trips) +
                    R"(}> ()
      one = Constant <value = float {1}> ()
      y = Loop <body = body (int64 i, bool c, float[256] v) => (bool c2, float[256] v2) {
        v2 = Add (v, one)
        c2 = Identity (c)
      }> (n, "", x)
    })");
  };
  TemporaryFolder folder;
  const Program few = compile(Model::load(write_model(folder, text(100))), Mesh(), {});
  const Program many = compile(Model::load(write_model(folder, text(10'000))), Mesh(), {});
  EXPECT_EQ(few.peak_bytes(0, {}), many.peak_bytes(0, {}));
  EXPECT_LE(many.peak_bytes(0, {}), 3 * 256 * sizeof(float) + 1024) << "two buffers, and the output";
  const Tensors result = Session(many, one_thread()).run({{"x", Tensor::zeros(DType::float32, {256})}});
  EXPECT_EQ(result.at("y").as<float>()[255], 10'000);
}

std::string error_of(const std::string& text) {
  TemporaryFolder folder;
  try {
    compile(Model::load(write_model(folder, text)), Mesh(), {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "no error";
}

TEST(ControlFlowErrors, NameTheLoopAndWhatWouldWork) {
  EXPECT_THAT(error_of(model_of(R"(g (int64 n, float[4] x) => (float[m, 4] all) {
    y, all = Loop <body = body (int64 i, bool c, float[4] v) => (bool c2, float[4] v2, float[4] row) {
      v2 = Add (v, v)  row = Neg (v)  c2 = Identity (c)
    }> (n, "", x)
  })")),
              AllOf(HasSubstr("'all' has a row per iteration"), HasSubstr("its trip count is computed"),
                    HasSubstr("ScatterND")));
  EXPECT_THAT(error_of(model_of(R"(g (int64 n, float[4] x) => (float[k] y) {
    y = Loop <body = body (int64 i, bool c, float[k] v) => (bool c2, float[j] v2) {
      v2 = Concat <axis = 0> (v, v)  c2 = Identity (c)
    }> (n, "", x)
  })")),
              AllOf(HasSubstr("float32[4]"), HasSubstr("float32[8]"), HasSubstr("a carried value keeps its type")));
  EXPECT_THAT(error_of(model_of(R"(g (float[4] x) => (float[4] y) {
    y = Loop <body = body (int64 i, bool c, float[4] v) => (bool c, float[4] v2) { v2 = Neg (v) }> ("", "", x)
  })")),
              HasSubstr("it never ends"));
  EXPECT_THAT(error_of(model_of(R"(g (bool c, float[4] x) => (float[k] y) {
    y = If <then_branch = t () => (float[4] a) { a = Neg (x) },
            else_branch = e () => (float[8] d) { d = Concat <axis = 0> (x, x) }> (c)
  })")),
              AllOf(HasSubstr("its branches give 'y' as float32[4] and float32[8]")));
  EXPECT_THAT(error_of(model_of(R"(g (int64 n, float[4] x) => (float[4] y) {
    y = Loop <body = body (int64 i, bool c, float[4] v) => (bool c2, float[4] v2) {
      r = RandomNormalLike (v)  v2 = Add (v, r)  c2 = Identity (c)
    }> (n, "", x)
  })")),
              AllOf(HasSubstr("draws random numbers"), HasSubstr("RandomNormalLike")));
}

// What is known before the run needs no construct: extents may then depend on the iteration.
TEST(KnownControl, IsDecidedBeforeTheRun) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, model_of(R"(g (float[4] x) => (float[32] y, float[4] z) {
    n = Constant <value = int64 {3}> ()
    y = Loop <body = body (int64 i, bool c, float[k] v) => (bool c2, float[j] v2) {
      v2 = Concat <axis = 0> (v, v)  c2 = Identity (c)
    }> (n, "", x)
    shape = Shape (x)
    four = Constant <value = int64[1] {4}> ()
    same = Equal (shape, four)
    z = If <then_branch = t () => (a) { a = Neg (x) }, else_branch = e () => (d) { d = Abs (x) }> (same)
  })")));
  const Program program = compile(model, Mesh(), {});
  EXPECT_THAT(program.text(), Not(HasSubstr("tessera.flow")));
  const Tensors result = Session(program, one_thread()).run({{"x", integers({4}, 5)}});
  EXPECT_EQ(result.at("z").as<float>()[0], -integers({4}, 5).as<float>()[0]);
}

TEST(ExportedControlFlow, GivesTheAnswersOfOnnxRuntime) {
  const auto folder = std::filesystem::path(TESSERA_TEST_DATA) / "models" / "control-flow";
  const Model model = Model::load(folder / "model.onnx");
  for (const char* mesh : {"", "dp=2", "tp=3", "dp=2,tp=2"})
    for (const char* number : {"0", "1"}) {
      SCOPED_TRACE(testing::Message() << mesh << " case " << number);
      const Program program = compile(model, Mesh::parse(mesh), {});
      EXPECT_TRUE(check_program(program).good());
      const Tensors actual = Session(program, {}).run(read_npz(folder / (std::string("inputs_") + number + ".npz")));
      for (const auto& [name, expected] : read_npz(folder / (std::string("outputs_") + number + ".npz"))) {
        const Tensor& found = actual.at(name);
        ASSERT_EQ(found.dims, expected.dims) << name;
        if (expected.dtype == DType::int64) {
          EXPECT_EQ(found.to_int64(), expected.to_int64()) << name;
          continue;
        }
        for (int64_t i = 0; i < expected.count(); ++i)
          EXPECT_NEAR(found.as<float>()[i], expected.as<float>()[i], 2e-5) << name << " " << i;
      }
    }
}

// Tensors in bodies are called after what holds them, whether a loop stays one or is written out.
TEST(ControlFlow, TakesAnnotationsOfTensorsInBodies) {
  const TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, model_of(R"(
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float[8, 8] w, int64 many = {100}, int64 two = {2}> {
      )" + kBranchInALoop + R"((many, "", x)
      z = Loop <body = twice (int64 j, bool d, float[4, 8] u) => (bool d2, float[4, 8] u2) {
        q = Add (u, u)
        u2 = Identity (q)
        d2 = Identity (d)
      }> (two, "", x)
    })"),
                                              5));
  const auto program_of = [&](std::vector<std::string> annotations) {
    Plan plan{.presets = "none"};
    for (std::string& text : annotations) plan.annotations.push_back({std::move(text), "annotation"});
    return compile(model, Mesh::parse("d=2"), plan);
  };
  const auto lies = [&](const Program& program, const std::string& name, const std::string& layout) {
    return program.explain(name).places.front().layout == layout;
  };
  const Tensors inputs = random_inputs(model, {}, 3);
  const Tensors expected = Session(compile(model, Mesh(), {})).run(inputs);
  const auto holds = [&](std::vector<std::string> annotations, std::map<std::string, std::string> layouts) {
    const Program program = program_of(std::move(annotations));
    for (const auto& [name, layout] : layouts)
      EXPECT_TRUE(lies(program, name, layout)) << name << " is " << program.explain(name).places.front().layout;
    EXPECT_TRUE(check_program(program).good());
    for (const Difference& difference : compare(expected, Session(program).run(inputs)))
      EXPECT_TRUE(difference.pass) << difference.max_rel;
  };
  holds({"y/p=[4{d}, -]"}, {{"y/p.as", "[4{d}, -]"}});
  holds({"y/r/then/a=[-, d]", "y/r/else/*=[d, -]"}, {{"y/r/then/a.as", "[-, 8{d}]"}, {"y/r/else/b.as", "[4{d}, -]"}});
  holds({"z/q=[-, d]"}, {{"z/0/q.as", "[-, 8{d}]"}, {"z/1/q.as", "[-, 8{d}]"}});
  holds({"y/v=[d, -]"}, {{"y/v.as", "[4{d}, -]"}});
  holds({"y/*=[d, -]"}, {{"y/p.as", "[4{d}, -]"}, {"y/v2.as", "[4{d}, -]"}, {"z/0/q", "[-, -]"}});
  holds({"*=[d, -]"}, {{"x", "[4{d}, -]"}});
  const auto message_of = [&](const char* annotation) -> std::string {
    try {
      program_of({annotation});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of("y/none=[d, -]"), HasSubstr("'y/none' matches no tensor of the model"));
  EXPECT_THAT(message_of("y/p=[d]"), HasSubstr("has 2 dimensions, but '[d]' has 1 entry"));
}

}  // namespace
}  // namespace tessera::test
