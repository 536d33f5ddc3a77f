// The forms of a written program are one program: the same answers, bit by bit, and the same memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/base/error.h"
#include "tessera/check.h"
#include "tessera/inspect.h"
#include "tessera/onnx/import.h"
#include "tessera/program_io/written_program.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;

std::filesystem::path model_at(const std::string& name) {
  return std::filesystem::path(TESSERA_TEST_DATA) / "models" / name / "model.onnx";
}

class Forms : public testing::TestWithParam<const char*> {};

TEST_P(Forms, GiveTheSameBits) {
  TemporaryFolder folder;
  Model model = Model::load(model_at(GetParam()));
  Tensors inputs = random_inputs(model, model.complete({}), 5);
  for (const char* mesh : {"tp=3", "dp=2,tp=2"}) {
    Program program = compile(model, Mesh::parse(mesh), {});
    Tensors expected = Session(program, one_thread()).run(inputs);
    for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for})
      for (RankIdentity rank_id : {RankIdentity::op, RankIdentity::input}) {
        SCOPED_TRACE(testing::Message() << mesh << " form " << static_cast<int>(form));
        WriteOptions options;
        options.form = form;
        options.rank_id = rank_id;
        program.write(folder / "out", options);
        Program read = Program::read(folder / "out");
        EXPECT_TRUE(check_program(read).good());
        expect_same(Session(read, one_thread()).run(inputs), expected);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Forms, testing::Values("mlp", "gpt2", "llama", "bert"));

// Writes the program in every form, reads it back and expects the answers. Returns how many forms there are.
int expect_in_every_form(const Program& program, const Tensors& inputs, const TemporaryFolder& folder,
                         const std::string& what) {
  const Tensors expected = Session(program, one_thread()).run(inputs);
  int written = 0;
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for})
    for (Lower lower : {Lower::collectives, Lower::primitives})
      for (Order order : {Order::tokens, Order::position})
        for (RankIdentity rank_id : {RankIdentity::op, RankIdentity::input, RankIdentity::constant})
          for (RankType rank_type : {RankType::integer, RankType::opaque}) {
            const bool constant = rank_id == RankIdentity::constant;
            if (constant && (form != Form::mpmd || rank_type == RankType::opaque)) continue;  // refused
            SCOPED_TRACE(testing::Message()
                         << what << " form " << static_cast<int>(form) << " lower " << static_cast<int>(lower)
                         << " order " << static_cast<int>(order) << " rank " << static_cast<int>(rank_id) << " of type "
                         << static_cast<int>(rank_type));
            WriteOptions options;
            options.form = form;
            options.lower = lower;
            options.order = order;
            options.rank_id = rank_id;
            options.rank_type = rank_type;
            program.write(folder / "out", options);
            const Program read = Program::read(folder / "out");
            const CheckReport report = check_program(read);
            EXPECT_TRUE(report.good());
            EXPECT_TRUE(form == Form::mpmd || report.models == 1) << "one model is one program";
            expect_same(Session(read, one_thread()).run(inputs), expected);
            ++written;
          }
  return written;
}

constexpr int kForms = 2 * 2 * (3 * 2 * 2 + 1);

// Extents that no mesh divides evenly, and sums that are exact in any order.
TEST(EveryForm, IsReadBackHoweverTheyAreWritten) {
  TemporaryFolder folder;
  const std::filesystem::path path = write_model(folder, R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[batch, 7] x) => (float[batch, 5] y) <float[7, 9] up, float[9, 5] down>
    { h = MatMul (x, up) r = Relu (h) y = MatMul (r, down) })");
  const Model model = Model::load(path);
  for (const char* mesh : {"tp=2", "dp=2,x=1,tp=3"})
    EXPECT_EQ(expect_in_every_form(compile(model, Mesh::parse(mesh), {}), {{"x", ramp({6, 7})}}, folder, mesh), kForms);
}

// Images whose rows and columns are split; the second windows are wider than the parts of three ranks.
TEST(EveryForm, HoldsHalos) {
  TemporaryFolder folder;
  const std::filesystem::path path = write_model(folder, R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[batch, 2, 9, 7] x) => (float[batch, 3, 3, 5] y) <float[2, 2, 3, 3] w, float[3, 2, 3, 5] v>
    { h = Conv <pads = [1, 1, 1, 1], strides = [2, 1]> (x, w) r = Relu (h)
      y = Conv <pads = [0, 1, 0, 1]> (r, v) })");
  const Model model = Model::load(path);
  Plan plan;
  plan.annotations = {{"x=[-, -, h, w]"}};
  for (const char* mesh : {"h=2,w=1", "h=1,w=3"}) {
    const Program program = compile(model, Mesh::parse(mesh), plan);
    EXPECT_NE(program.text().find("Recv"), std::string::npos);
    EXPECT_EQ(expect_in_every_form(program, {{"x", ramp({2, 2, 9, 7})}}, folder, mesh), kForms);
  }
}

// Sequences that are split, and read in windows; the last extents divide by no mesh.
TEST(EveryForm, HoldsSequencesInWindows) {
  TemporaryFolder folder;
  const std::filesystem::path path = write_model(folder, R"(<ir_version: 12, opset_import: ["" : 28]>
    g (float[2, 2, 7, 4] x, float[2, 2, 7, 4] v, float[2, 8, 7] r, float[2, 8, 3] s) => (float[2, 2, 7, 4] y, float[2, 8, 7] z)
    <float[8, 1, 4] w>
    { y = Attention <is_causal = 1, left_window_size = 1> (x, x, v)
      z = CausalConvWithState (r, w, , s) })");
  const Model model = Model::load(path);
  Plan plan;
  plan.annotations = {{"x=[-, -, sp, -]"}, {"v=[-, -, sp, -]"}, {"r=[-, -, sp]"}};
  for (const char* mesh : {"sp=2", "sp=3"}) {
    const Program program = compile(model, Mesh::parse(mesh), plan);
    EXPECT_NE(program.text().find("Recv"), std::string::npos);
    EXPECT_EQ(program.text().find("AllGather"), std::string::npos);
    // Keys that weigh the same, in any form.
    const Tensors inputs = {{"x", Tensor::zeros(DType::float32, {2, 2, 7, 4})},
                            {"v", ramp({2, 2, 7, 4})},
                            {"r", ramp({2, 8, 7})},
                            {"s", ramp({2, 8, 3})}};
    EXPECT_EQ(expect_in_every_form(program, inputs, folder, mesh), kForms);
  }
}

// A loop whose iterations gather the state.
TEST(EveryForm, HoldsRecurrencesThatAreSplitByUnits) {
  TemporaryFolder folder;
  const std::filesystem::path path = write_model(folder, R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[5, 2, 3] x) => (float[5, 2, 2, 5] y, float[2, 2, 5] h) <float[2, 15, 3] w, float[2, 15, 5] r>
    { y, h = GRU <hidden_size = 5, direction = "bidirectional", activations = ["Relu", "Relu", "Relu", "Relu"]>
        (x, w, r) })");
  const Model model = Model::load(path);
  Plan plan;
  plan.annotations = {{"w=[-, 3*5{tp}, -]"}, {"r=[-, 3*5{tp}, -]"}};
  for (const char* mesh : {"tp=2", "tp=3"}) {
    const Program program = compile(model, Mesh::parse(mesh), plan);
    EXPECT_NE(program.text().find("tessera.flow.Loop"), std::string::npos);
    EXPECT_EQ(expect_in_every_form(program, {{"x", ramp({5, 2, 3})}}, folder, mesh), kForms);
  }
}

// Two ranks have none of the six experts, and no matrix to gather for a choice. Products add up in another order than
// in one operator.
TEST(Primitives, TakeRanksWithoutExperts) {
  TemporaryFolder folder;
  const Model model = Model::load(model_at("moe-batch"));
  const Tensors inputs = random_inputs(model, model.complete({}), 5);
  const Program program = compile(model, Mesh::parse("ep=8"), {});
  const Tensors expected = Session(program, one_thread()).run(inputs);
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for}) {
    SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(form));
    WriteOptions options;
    options.form = form;
    options.lower = Lower::primitives;
    program.write(folder / "out", options);
    const Program read = Program::read(folder / "out");
    EXPECT_TRUE(check_program(read).good());
    const Tensors answers = Session(read, one_thread()).run(inputs);
    for (const auto& [name, tensor] : expected) {
      const auto wanted = tensor.as<float>(), got = answers.at(name).as<float>();
      ASSERT_EQ(got.size(), wanted.size()) << name;
      double largest = 0, worst = 0;
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_TRUE(std::isfinite(got[i])) << name << " element " << i;
        largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
        worst = std::max(worst, std::abs(static_cast<double>(wanted[i]) - got[i]));
      }
      EXPECT_LE(worst, 1e-5 * largest) << name;
    }
  }
}

// Each rank's process reads the program for itself, with earlier allocations of its own.
TEST(EveryForm, HasInputsThatNobodyReads) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[4, 7] x, float[2, 3] unread) => (float[4, 5] y) <float[7, 5] w> { y = MatMul (x, w) })"));
  const Tensors inputs = {{"x", ramp({4, 7})}, {"unread", ramp({2, 3})}};
  const Program program = compile(model, Mesh::parse("tp=2"), {});
  const Tensors expected = Session(program, one_thread()).run(inputs);
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for}) {
    WriteOptions options;
    options.form = form;
    program.write(folder / "out", options);
    const Program read = Program::read(folder / "out");
    EXPECT_EQ(read.inputs().size(), 2u);
    expect_same(Session(read, one_thread()).run(inputs), expected);
  }
}

TEST(EveryForm, IsReadAlikeWhereverMemoryLies) {
  TemporaryFolder folder;
  const Program program = compile(Model::load(model_at("gpt2")), Mesh::parse("tp=3"), {});
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for}) {
    WriteOptions options;
    options.form = form;
    program.write(folder / "out", options);
    std::vector<Program> programs;
    std::vector<std::vector<char>> others;
    for (size_t i = 0; i < 6; ++i) {
      programs.push_back(Program::read(folder / "out"));
      EXPECT_TRUE(programs.back().text() == programs.front().text()) << "form " << static_cast<int>(form);
      for (size_t j = 0; j < 500; ++j) others.emplace_back((i * 131 + j * 61) % 4096);
    }
  }
}

TEST(SpmdForm, IsOneModelOfWholeWeightsThatRanksLoadTheirShardsOf) {
  TemporaryFolder folder;
  Model model = Model::load(model_at("gpt2"));
  Program program = compile(model, Mesh::parse("tp=3"), {});
  WriteOptions options;
  options.form = Form::spmd;
  program.write(folder / "out", options);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.onnx"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/weights/1.bin"));
  for (int64_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(Program::read(folder / "out").peak_bytes(rank, {}), program.peak_bytes(rank, {}));
}

TEST(ParallelFor, HasTheInputsWeightsAndOutputsOfTheModel) {
  TemporaryFolder folder;
  WriteOptions options;
  options.form = Form::parallel_for;
  compile(Model::load(model_at("mlp")), Mesh::parse("dp=2,tp=2"), {}).write(folder / "out", options);
  OnnxModel written = import_model(folder / "out/model.onnx");
  ASSERT_EQ(written.graph->nodes().size(), 1u);
  const Node& loop = *written.graph->nodes()[0];
  EXPECT_EQ(loop.op_type, "ParallelFor");
  EXPECT_EQ(*loop.get<std::vector<std::string>>("axes"), (std::vector<std::string>{"dp", "tp"}));
  EXPECT_EQ(loop.get_ints("sizes"), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(loop.get_ints("from")[0], 0);
  EXPECT_EQ((*loop.get<Region>("body"))->inputs.size(), 1u);
  for (const auto& [name, shape] :
       {std::pair("m.m.0.weight", "[128, 128]"), {"x", "[batch, 128]"}, {"y", "[batch, 128]"}}) {
    ASSERT_NE(written.graph->find(name), nullptr) << name;
    EXPECT_EQ(to_string(written.graph->find(name)->shape()), shape);
  }
}

TEST(OneModelForms, HaveNoConstantRank) {
  TemporaryFolder folder;
  std::filesystem::path path = write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(kPair));
  WriteOptions options;
  options.form = Form::spmd;
  options.rank_id = RankIdentity::constant;
  try {
    compile(Model::load(path), Mesh::parse("tp=2"), {}).write(folder / "out", options);
    ADD_FAILURE() << "written";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("leave out `rank_id=constant`"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(AnnotatedModel, IsSplitWhereItIsLoaded) {
  TemporaryFolder folder;
  std::filesystem::path path = write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(kPair));
  Plan plan;
  plan.mesh = "dp=2,tp=?";
  plan.annotations = {{"x=[dp, -]"}, {"up=[-, tp]"}};
  Model::load(path).write_annotated(folder / "annotated.onnx", plan);
  Model annotated = Model::load(folder / "annotated.onnx");
  Tensors inputs = {{"x", ramp({3, 8})}};
  Tensors expected = Session(compile(Model::load(path), {}, {}), one_thread()).run(inputs);
  for (const char* mesh : {"dp=2,tp=2", "dp=2,tp=3"}) {
    Plan ours;
    ours.mesh = mesh;
    Plan whole = ours.over(annotated.plan());
    Program program = compile(annotated, Mesh::parse(whole.mesh), whole);
    EXPECT_EQ(program.summary().collectives.size(), 1u);
    EXPECT_EQ(program.summary().collectives[0].axes, std::vector<std::string>{"tp"});
    expect_same(Session(program, one_thread()).run(inputs), expected);
  }
  for (const char* mesh : {"tp=2", "dp=4,tp=2", "dp=2,x=2"}) {
    Plan ours;
    ours.mesh = mesh;
    EXPECT_THROW(ours.over(annotated.plan()), Error) << mesh;
  }
  try {
    Mesh::parse(annotated.plan().mesh);
    ADD_FAILURE() << "a mesh";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("leaves the size of the axis tp open"));
  }
}

TEST(AnnotatedModel, LeavesWholeSizesOpenOnly) {
  TemporaryFolder folder;
  std::filesystem::path path = write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(kPair));
  Plan plan;
  plan.mesh = "tp=1?";
  EXPECT_THROW(Model::load(path).write_annotated(folder / "annotated.onnx", plan), Error);
}

TEST(ParallelFor, KeepsNamesThatLookLikeItsOwn) {
  TemporaryFolder folder;
  std::filesystem::path path = write_model(folder, R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[4, 8] x) => (float[4, 8] "z.body", float[4, 8] z) {
      "z.body" = Relu (x)
      z = Neg (x)
    })");
  WriteOptions options;
  options.form = Form::parallel_for;
  Program program = compile(Model::load(path), Mesh::parse("dp=2"), {});
  program.write(folder / "out", options);
  Tensors inputs = {{"x", ramp({4, 8})}};
  expect_same(Session(Program::read(folder / "out"), one_thread()).run(inputs),
              Session(program, one_thread()).run(inputs));
}

TEST(AnnotatedModel, IsNotWrittenWithAPlanThatCannotBeFollowed) {
  TemporaryFolder folder;
  std::filesystem::path path = write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(kPair));
  Plan plan;
  plan.mesh = "tp=?";
  plan.annotations = {{"nothing=[-, tp]"}};
  EXPECT_THROW(Model::load(path).write_annotated(folder / "annotated.onnx", plan), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "annotated.onnx"));
}

}  // namespace
}  // namespace tessera::test
