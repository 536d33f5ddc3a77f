// Nodes that run on some ranks only: the answers are those of a run without places, in every form; ranks hold the
// weights of their nodes only; and places that cannot be are refused in words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/base/error.h"
#include "tessera/check.h"
#include "tessera/inspect.h"
#include "tessera/onnx/import.h"
#include "tessera/program_io/written_program.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::filesystem::path model_at(const std::string& name) {
  if (name == "tiny") return std::filesystem::path(TESSERA_EXAMPLES) / "tiny" / "model.onnx";
  return std::filesystem::path(TESSERA_TEST_DATA) / "models" / name / "model.onnx";
}

Plan places(const std::vector<std::string>& texts) {
  Plan plan;
  for (const std::string& text : texts) plan.places.push_back({text, "place"});
  return plan;
}

/// Two stages, embedding to head.
Plan stages_of(const std::string& model) {
  if (model == "gpt2")
    return places({"m.transformer.wte=pp:0", "m.transformer.wpe=pp:0", "m.transformer.h.0=pp:0",
                   "m.transformer.h.1=pp:1", "m.transformer.ln_f=pp:1", "m.lm_head=pp:1"});
  return places({"m.model.embed_tokens=pp:0", "m.model.layers.0=pp:0", "m.model.layers.1=pp:0", "m.model.layers.2=pp:0",
                 "m.model.layers.*=pp:1", "m.model.norm=pp:1", "m.lm_head=pp:1"});
}

class Stages : public testing::TestWithParam<const char*> {};

TEST_P(Stages, GiveTheSameBitsInEveryForm) {
  TemporaryFolder folder;
  Model model = Model::load(model_at(GetParam()));
  Tensors inputs = random_inputs(model, model.complete({}), 5);
  for (const auto& [mesh, without] : {std::pair("pp=2", ""), {"pp=2,tp=2", "tp=2"}, {"tp=2,pp=2", "tp=2"}}) {
    SCOPED_TRACE(mesh);
    Tensors expected = Session(compile(model, Mesh::parse(without), {}), one_thread()).run(inputs);
    Program program = compile(model, Mesh::parse(mesh), stages_of(GetParam()));
    EXPECT_TRUE(check_program(program).good());
    expect_same(Session(program, one_thread()).run(inputs), expected);
    for (const auto& [form, lower, rank_id] : {std::tuple(Form::mpmd, Lower::collectives, RankIdentity::op),
                                               {Form::mpmd, Lower::primitives, RankIdentity::constant},
                                               {Form::spmd, Lower::collectives, RankIdentity::op},
                                               {Form::spmd, Lower::primitives, RankIdentity::input},
                                               {Form::parallel_for, Lower::collectives, RankIdentity::op},
                                               {Form::parallel_for, Lower::primitives, RankIdentity::op}}) {
      SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(form) << ", lower " << static_cast<int>(lower));
      WriteOptions options;
      options.form = form;
      options.lower = lower;
      options.rank_id = rank_id;
      program.write(folder / "out", options);
      Program read = Program::read(folder / "out");
      EXPECT_TRUE(check_program(read).good());
      expect_same(Session(read, one_thread()).run(inputs), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Stages, testing::Values("gpt2", "tiny"));

// Names of the nodes' results, also in branches; each must occur once.
void collect(const Graph& graph, std::multiset<std::string>& names) {
  for (const auto& node : graph.nodes()) {
    for (const Value* result : node->outputs)
      if (result) names.insert(result->name);
    for (const Graph* region : node->regions()) collect(*region, names);
  }
}

TEST(Places, AreBranchesOfAModelForAllRanks) {
  TemporaryFolder folder;
  WriteOptions options;
  options.form = Form::spmd;
  compile(Model::load(model_at("tiny")), Mesh::parse("pp=2,tp=2"), stages_of("tiny")).write(folder / "out", options);
  const OnnxModel written = import_model(folder / "out/model.onnx");
  size_t branches = 0;
  for (const auto& node : written.graph->nodes()) {
    branches += node->op_type == "If";
    EXPECT_NE(node->op_type, "Attention") << "it is of a stage";
  }
  EXPECT_EQ(branches, 4u) << "of each stage the slices of its weights, and its nodes";
  std::multiset<std::string> names;
  collect(*written.graph, names);
  for (const std::string& name : names) EXPECT_EQ(names.count(name), 1u) << name;
}

// However many ranks there are, they are read, and proved, as one program a stage.
TEST(Places, AreReadByClassesOfRanks) {
  TemporaryFolder folder;
  Program program = compile(Model::load(model_at("gpt2")), Mesh::parse("dp=3,pp=2,tp=2"), stages_of("gpt2"));
  for (Form form : {Form::spmd, Form::parallel_for})
    for (Lower lower : {Lower::collectives, Lower::primitives})
      for (RankIdentity rank_id : {RankIdentity::op, RankIdentity::input}) {
        WriteOptions options;
        options.form = form;
        options.lower = lower;
        options.rank_id = rank_id;
        program.write(folder / "out", options);
        const CheckReport report = check_program(Program::read(folder / "out"));
        EXPECT_TRUE(report.good());
        EXPECT_EQ(report.ranks, 12);
        EXPECT_EQ(report.models, 2) << static_cast<int>(form) << " " << static_cast<int>(lower);
      }
}

TEST(Places, HalveTheWeightsOfARank) {
  TemporaryFolder folder;
  Model model = Model::load(model_at("tiny"));
  Program whole = compile(model, Mesh(), {});
  Program program = compile(model, Mesh::parse("pp=2"), stages_of("tiny"));
  program.write(folder / "out");
  whole.write(folder / "whole");
  const auto all = std::filesystem::file_size(folder / "whole/weights/0.bin");
  uintmax_t sum = 0;
  for (const char* file : {"out/weights/0.bin", "out/weights/1.bin"}) {
    const auto bytes = std::filesystem::file_size(folder / file);
    EXPECT_LT(bytes, all * 6 / 10) << file;
    sum += bytes;
  }
  EXPECT_LT(sum, all * 11 / 10) << "little is stored twice";
  for (int64_t rank = 0; rank < 2; ++rank) {
    EXPECT_LT(program.peak_bytes(rank, {}), whole.peak_bytes(0, {}) * 7 / 10);
    // What lies where its elements cannot be read in place is copied to be packed.
    const auto planned = static_cast<double>(program.peak_bytes(rank, {}));
    EXPECT_NEAR(static_cast<double>(Program::read(folder / "out").peak_bytes(rank, {})), planned, planned / 100);
  }
}

TEST(Places, OfAnyNodesGiveTheSameAnswer) {
  for (const char* name : {"mlp", "tiny"}) {
    Model model = Model::load(model_at(name));
    const OnnxModel read = import_model(model_at(name));
    Tensors inputs = random_inputs(model, model.complete({}), 5);
    for (uint64_t seed = 1; seed <= 3; ++seed)
      for (const auto& [mesh, without, size] : {std::tuple("pp=2", "", 2), {"pp=3", "", 3}, {"pp=2,tp=2", "tp=2", 2}}) {
        SCOPED_TRACE(testing::Message() << name << " on " << mesh << ", seed " << seed);
        std::mt19937_64 engine(seed);
        Plan plan;
        for (const auto& node : read.graph->nodes())
          if (const auto index = static_cast<int>(engine() % 6); index < size && node->output())
            plan.places.push_back({node->output()->name + "=pp:" + std::to_string(index), "place"});
        Program program = compile(model, Mesh::parse(mesh), plan);
        ASSERT_TRUE(check_program(program).good()) << check_program(program).findings.front().message;
        Tensors expected = Session(compile(model, Mesh::parse(without), {}), one_thread()).run(inputs);
        Tensors actual = Session(program, one_thread()).run(inputs);
        // Kernels take other groups of nodes together, so floats may round in another place; sums of integers are held
        // to the bit by the random programs (tests/random).
        for (const auto& [output, tensor] : expected) {
          const auto wanted = tensor.as<float>(), found = actual.at(output).as<float>();
          for (size_t i = 0; i < wanted.size(); ++i)
            ASSERT_NEAR(found[i], wanted[i], 1e-4 * std::max(1.0F, std::abs(wanted[i]))) << output << " " << i;
        }
      }
  }
}

// A sum at a place, by a tree of messages: the zeros of the other ranks are cast as data would be.
// Others may want a placed node's result split over the axis of its place, too.
TEST(Places, AreNotSplitOverTheirAxis) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(
    g (float[5, 6] base, float[3, 6] x, int64[3, 1] at, float[6, 3] b, float[3, 8, 2, 4] z) =>
        (float[5, 3] y, float[3, 2, 4, 8] u) {
      placed = ScatterND <reduction = "none"> (base, at, x)
      y = MatMul (placed, b)
      u = DepthToSpace <blocksize = 2, mode = "CRD"> (z)
    })"));
  Plan plan = places({"placed=x:1"});
  for (const char* text : {"y=[{y,x}?, -]", "z=[{y,x}, -, -, -]", "u=[-, -, -, {x}]"})
    plan.annotations.push_back({text, "annotation"});
  const Tensors inputs = random_inputs(model, {}, 5);
  expect_same(Session(compile(model, Mesh::parse("x=2,y=2"), plan), one_thread()).run(inputs),
              Session(compile(model, Mesh(), {}), one_thread()).run(inputs));
}

TEST(Places, SumsAreTakenThereByMessagesToo) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(kPair)));
  Plan plan = places({"active=pp:1"});
  plan.annotations = {{"up=[pp, -]", "annotation"}};
  Tensors inputs = {{"x", ramp({3, 8})}};
  Program program = compile(model, Mesh::parse("pp=3"), plan);
  EXPECT_THAT(program.text(), HasSubstr("tessera.comm.Reduce"));
  WriteOptions options;
  options.lower = Lower::primitives;
  program.write(folder / "out", options);
  expect_same(Session(Program::read(folder / "out"), one_thread()).run(inputs),
              Session(compile(model, Mesh(), {}), one_thread()).run(inputs));
}

// Pieces change ranks among those that stay; the others let go of theirs.
TEST(Places, MayBeReachedWhilePiecesAreReordered) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(
      folder, "<ir_version: 10, opset_import: [\"\" : 24]> m (float[12] x) => (float[12] y) { y = Neg (x) }", 3));
  Plan plan;
  plan.annotations = {{"x=[12{a:(1)2,a:(2)3}]"}, {"y=[12{a:(2)3,a:(1)2}]"}};
  plan.places = {{"y=b:1"}};
  const Program program = compile(model, Mesh::parse("a=6,b=2"), plan);
  ASSERT_NE(program.text().find("Permute"), std::string::npos);
  const CheckReport report = check_program(program);
  EXPECT_TRUE(report.good()) << report.findings.front().message;
  const Tensors inputs = {{"x", ramp({12})}};
  expect_same(Session(program, one_thread()).run(inputs),
              Session(compile(model, Mesh(), {}), one_thread()).run(inputs));
}

TEST(Places, AreExplained) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(kPair)));
  Program program = compile(model, Mesh::parse("pp=2"), places({"active=pp:1"}));
  Explanation active = program.explain("active");
  EXPECT_EQ(active.places.at(0).layout, "[-, -] at(pp=1)");
  ASSERT_EQ(active.reshards.size(), 1u);
  EXPECT_THAT(active.reshards[0].steps, testing::ElementsAre("Broadcast pp"));
}

std::string error_of(const std::string& place, const std::string& mesh, Plan plan = {}) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(kPair)));
  plan.places.push_back({place, "place"});
  try {
    compile(model, Mesh::parse(mesh), plan);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "no error";
}

TEST(Places, ThatCannotBeAreRefused) {
  EXPECT_THAT(error_of("active", "pp=2"), AllOf(HasSubstr("[place]"), HasSubstr("write NAME=AXIS:INDEX")));
  EXPECT_THAT(error_of("active=stage:1", "pp=2"), HasSubstr("'stage' is not an axis of the mesh pp=2"));
  EXPECT_THAT(error_of("active=pp:2", "pp=2"), HasSubstr("axis 'pp' has no index 2; its indices are 0 to 1"));
  EXPECT_THAT(error_of("active=pp:x", "pp=2"), HasSubstr("'pp:x' is not a place"));
  EXPECT_THAT(error_of("active=pp:0,pp:1", "pp=2"), HasSubstr("named twice"));
  EXPECT_THAT(error_of("actve=pp:1", "pp=2"), AllOf(HasSubstr("matches no node"), HasSubstr("did you mean 'active'")));
  EXPECT_THAT(error_of("up=pp:1", "pp=2"), HasSubstr("matches no node")) << "a weight follows its nodes";
  Plan split;
  split.annotations = {{"hidden=[-, pp]"}};
  EXPECT_THAT(error_of("hidden=pp:1", "pp=2", split),
              AllOf(HasSubstr("[place] 'hidden'"), HasSubstr("leave out one of the two")));
  split.annotations = {{"up=[-, pp]"}};
  EXPECT_THAT(error_of("hidden=pp:1", "pp=2", split), HasSubstr("[place] 'up'"));
  split.annotations = {{"hidden=[-, -] at(pp=1)"}};
  EXPECT_THAT(error_of("active=pp:1", "pp=2", split), HasSubstr("`places` 'hidden=pp:1'"));
}

TEST(Places, AreHeldToTheSizeOfAMeshOnceItIsKnown) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(kPair)));
  Plan plan = places({"active=pp:(2)2=1", "hidden=pp:2"});
  plan.mesh = "pp=?";
  model.write_annotated(folder / "annotated.onnx", plan);
  Model annotated = Model::load(folder / "annotated.onnx");
  EXPECT_TRUE(check_program(compile(annotated, Mesh::parse("pp=4"), annotated.plan())).good());
  EXPECT_THROW(compile(annotated, Mesh::parse("pp=2"), annotated.plan()), Error);
}

TEST(Places, ArePartOfAPlan) {
  const Plan plan = Plan::from_json(R"({"mesh": "pp=2", "places": ["a*=pp:1"]})", "p.json");
  ASSERT_EQ(plan.places.size(), 1u);
  EXPECT_EQ(plan.places[0].text, "a*=pp:1");
  EXPECT_EQ(plan.places[0].by, "plan file p.json");
  EXPECT_EQ(Plan::from_json(plan.to_json()).places[0].text, "a*=pp:1");
  Plan stronger;
  stronger.places = {{"b=pp:0", "place"}};
  EXPECT_EQ(stronger.over(plan).places.at(1).text, "a*=pp:1") << "the caller's come first";
}

}  // namespace
}  // namespace tessera::test
