#include "tessera/spmd/presets/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "spmd/compiled.h"
#include "tessera/base/error.h"

namespace tessera::spmd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kMlp =
    "m (float[b, 6] x) => (float[b, 6] y) <float[6, 8] up, float[8] bias, float[8, 6] down> {\n"
    "  h = MatMul (x, up)\n"
    "  s = Add (h, bias)\n"
    "  a = Relu (s)\n"
    "  y = MatMul (a, down)\n"
    "}\n";

struct Applied {
  std::vector<std::string> annotations;  // "up=[-, 8{tp}]"
  std::vector<std::string> warnings, notes;
};

Applied apply(std::string_view text, std::string_view preset, std::string_view mesh) {
  Compiled compiled(text, mesh);
  Applied applied;
  const Storage storage;
  std::vector<Annotation> annotations;
  for (const PresetRequest& request : parse_presets(preset, compiled.mesh)) {
    const std::string by = "preset " + std::string(request.preset->name);
    PresetContext context{*compiled.model.graph, *compiled.layout, storage,      compiled.hints, request.axis, by,
                          annotations,           applied.warnings, applied.notes};
    request.preset->apply(context);
    compiled.propagation = propagate(*compiled.layout, annotations, compiled.mesh);
    compiled.decisions = decide(*compiled.model.graph, *compiled.layout, compiled.mesh, compiled.hints, annotations);
    if (request.preset->review) request.preset->review(context, compiled.decisions);
  }
  for (const Annotation& annotation : annotations)
    applied.annotations.push_back(annotation.value->name + "=" + annotation.sharding.str(compiled.mesh));
  return applied;
}

using test::error_of;

std::vector<std::string> names(const std::vector<PresetRequest>& requests) {
  std::vector<std::string> all;
  for (const PresetRequest& request : requests)
    all.push_back(std::string(request.preset->name) + ":" + request.axis.axis);
  return all;
}

TEST(Presets, AreReadWithTheAxisOfTheirName) {
  Mesh mesh = Mesh::parse("dp=2,tp=2,x=2");
  EXPECT_THAT(names(parse_presets("dp+megatron", mesh)), ElementsAre("dp:dp", "megatron:tp"));
  EXPECT_THAT(names(parse_presets("megatron:x", mesh)), ElementsAre("megatron:x"));
}

TEST(Presets, AreRefusedByNameAndByAxis) {
  Mesh mesh = Mesh::parse("dp=2");
  EXPECT_THAT(error_of([&] { parse_presets("zero9", mesh); }), HasSubstr("megatron")) << "it lists those there are";
  EXPECT_THAT(error_of([&] { parse_presets("dp:q", mesh); }), HasSubstr("q"));
  EXPECT_THAT(error_of([&] { parse_presets("megatron", mesh); }), HasSubstr("tp"));
}

TEST(Presets, AreImpliedByTheNamesOfAxes) {
  EXPECT_THAT(names(implied_presets(Mesh::parse("dp=2,tp=2"))), ElementsAre("dp:dp", "megatron:tp"));
  EXPECT_THAT(names(implied_presets(Mesh::parse(""))), IsEmpty());
  EXPECT_THAT(error_of([] { implied_presets(Mesh::parse("q=2")); }), HasSubstr("q"));
  EXPECT_NO_THROW(implied_presets(Mesh::parse("q=1"))) << "an axis of one rank is legal everywhere";
}

constexpr std::string_view kMixture =
    "m (float[t, 8] x, int64[t, 2] i, float[t, 2] w) => (float[t, 8] y) <float[6, 12, 8] up, float[6, 8, 12] down> {\n"
    "  u = Transpose <perm = [0, 2, 1]> (up)\n  d = Transpose <perm = [0, 2, 1]> (down)\n"
    "  y = tessera.Experts <activation = \"relu\"> (x, i, w, u, d)\n}\n";

TEST(Expert, SplitsTheExpertsWhereTheyAreStored) {
  EXPECT_THAT(apply(kMixture, "expert", "ep=2").annotations, ElementsAre("up=[6{ep}?, ?, ?]"));
  Compiled compiled(kMixture, "ep=2", {{"up", "[{ep}?, ?, ?]"}});
  EXPECT_EQ(compiled.stored("down"), "[6{ep}, -, -]") << "all matrices follow the first";
  EXPECT_EQ(compiled.communication(), "y: AllReduce ep");
}

TEST(Expert, WarnsWhereThereIsNoMixture) {
  EXPECT_THAT(apply(kMlp, "expert", "ep=2").warnings, ElementsAre(HasSubstr("no mixture of experts")));
}

TEST(Megatron, SplitsTheHiddenElementsOfAMixture) {
  Applied applied = apply(kMixture, "megatron", "tp=2");
  EXPECT_THAT(applied.annotations, ElementsAre("up=[?, 12{tp}?, ?]"));
  EXPECT_THAT(applied.warnings, IsEmpty());
}

constexpr std::string_view kAttention =
    "m (float[b, s, 8] x, float[b, s] weight, float[s, 8] place) => (float[b, s, 8] y) <float[8, 8] q, float[8, 8] k, "
    "float[8, 8] v, float[8, 32] up, float[32, 8] down> {\n"
    "  x1 = Add (x, place)\n  c = MatMul (x1, q)\n  d = MatMul (x1, k)\n  e = MatMul (x1, v)\n"
    "  a = Attention <q_num_heads = 2, kv_num_heads = 2> (c, d, e)\n"
    "  h = MatMul (a, up)\n  r = Relu (h)\n  p = MatMul (r, down)\n"
    "  axis = Constant <value = int64[1] {2}> ()\n  w = Unsqueeze (weight, axis)\n  y = Mul (p, w)\n}\n";

TEST(Context, SplitsWhatRunsAlongTheQueries) {
  EXPECT_THAT(apply(kAttention, "context", "cp=2").annotations,
              ElementsAre("x=[?, s{cp}?, ?]", "weight=[?, s{cp}?]", "place=[s{cp}?, ?]"));
  Compiled compiled(kAttention, "cp=2", {{"x", "[?, {cp}?, ?]"}});
  EXPECT_EQ(compiled.communication(), "d: AllGather cp; e: AllGather cp") << "keys and values";
}

TEST(Context, NestsWithOthersInAnyOrder) {
  for (const char* presets : {"dp+context", "context+dp"})
    EXPECT_THAT(apply(kAttention, presets, "dp=2,cp=2").annotations,
                ElementsAre("x=[b{dp}?, s{cp}?, ?]", "weight=[b{dp}?, s{cp}?]", "place=[s{cp}?, ?]"))
        << presets;
  // The sequence that a rank has is split further between products, and whole within them.
  EXPECT_THAT(apply(kAttention, "sequence+context", "cp=2,tp=2").annotations,
              testing::IsSupersetOf({"x=[?, s{cp}?, ?]", "p=[?, s{cp,tp}, ?]", "h=[?, s{cp}, ?]"}));
}

TEST(Context, WarnsWhereThereIsNoAttention) {
  EXPECT_THAT(apply(kMlp, "context", "cp=2").warnings, ElementsAre(HasSubstr("an attention's queries")));
}

TEST(DataParallel, SplitsTheBatchOfTheInputs) {
  Applied applied = apply(kMlp, "dp", "dp=2");
  EXPECT_THAT(applied.annotations, ElementsAre("x=[b{dp}?, ?]"));
  EXPECT_THAT(applied.warnings, IsEmpty());
}

TEST(Megatron, SplitsColumnsThenRows) {
  Applied applied = apply(kMlp, "megatron", "tp=2");
  EXPECT_THAT(applied.annotations, ElementsAre("down=[8{tp}?, ?]")) << "the columns of up follow by propagation";
  Compiled compiled(kMlp, "tp=2", {{"down", "[{tp}?, ?]"}});
  EXPECT_EQ(compiled.propagated("up"), "[-, 8{tp}]");
  EXPECT_EQ(compiled.communication(), "y: AllReduce tp");
  EXPECT_THAT(applied.warnings, IsEmpty());
}

TEST(Megatron, WarnsWhereThereIsNoPair) {
  Applied applied = apply("m (float[4] x) => (float[4] y) { y = Relu (x) }", "megatron", "tp=2");
  EXPECT_THAT(applied.annotations, IsEmpty());
  EXPECT_THAT(applied.warnings, ElementsAre(HasSubstr("no pair of matmuls")));
}

// Two products that pair, and weights beside them that stay whole.
std::string beside_a_pair(std::string_view states, std::string_view nodes) {
  return "m (float[b, 64] x, int64[b] i) => (float[b, 64] y, float r) <float[64, 256] up, float[256, 64] down, " +
         std::string(states) + "> {\n  h = MatMul (x, up)\n  y = MatMul (h, down)\n" + std::string(nodes) + "}\n";
}

TEST(Megatron, SaysWhatItLeavesWholeAndWhy) {
  EXPECT_THAT(apply(beside_a_pair("float[64, 20] head", "  o = MatMul (y, head)\n  r = ReduceMax <keepdims = 0> (o)\n"),
                    "megatron", "tp=2")
                  .warnings,
              ElementsAre(testing::AllOf(
                  HasSubstr("preset megatron: 3.76 % of the parameters' bytes stay whole on every rank of "
                            "tp; the largest is 'head' [64, 20]"),
                  HasSubstr("is not paired"))));
  EXPECT_THAT(
      apply("m (float[b, 64] x) => (float[b, 20] z) <float[64, 256] up, float[256, 64] down, float[64, 20] head> {\n"
            "  h = MatMul (x, up)\n  y = MatMul (h, down)\n  z = MatMul (y, head)\n}\n",
            "megatron", "tp=2")
          .warnings,
      ElementsAre(HasSubstr("is a head, whose 20 columns are fewer than 16 for each rank")));
  EXPECT_THAT(
      apply(beside_a_pair("float[10, 64] table", "  o = Gather (table, i)\n  r = ReduceMax <keepdims = 0> (o)\n"),
            "megatron", "tp=2")
          .warnings,
      ElementsAre(HasSubstr("looks it up, and its 10 rows are fewer than 16 for each rank")));
  EXPECT_THAT(apply(beside_a_pair("float[4, 64, 64] experts",
                                  "  k = ReduceMax <keepdims = 0> (i)\n  e = Gather (experts, k)\n"
                                  "  o = MatMul (y, e)\n  r = ReduceMax <keepdims = 0> (o)\n"),
                    "megatron", "tp=2")
                  .warnings,
              ElementsAre(testing::AllOf(HasSubstr("33.3 %"), HasSubstr("'experts' [4, 64, 64]: Gather"))));
}

TEST(Megatron, SaysNothingOfVectorsAndOfWhatOthersLaidOut) {
  Applied applied = apply(
      "m (float[b, 6] x) => (float[b, 6] y) <float[6, 8] up, float[8, 6] down, float[6] bias> {\n"
      "  h = MatMul (x, up)\n  p = MatMul (h, down)\n  y = Add (p, bias)\n}\n",
      "megatron", "tp=2");
  EXPECT_THAT(applied.warnings, IsEmpty());
  EXPECT_THAT(applied.notes, IsEmpty());
}

TEST(Megatron, NotesWhatIsSmall) {
  Applied applied = apply(
      "m (float[b, 512] x) => (float[b, 2] z) <float[512, 2048] up, float[2048, 512] down, "
      "float[512, 2] head> {\n"
      "  h = MatMul (x, up)\n  y = MatMul (h, down)\n  z = MatMul (y, head)\n}\n",
      "megatron", "tp=2");
  EXPECT_THAT(applied.warnings, IsEmpty());
  EXPECT_THAT(applied.notes, ElementsAre(HasSubstr("0.0488 % of the parameters' bytes")));
}

}  // namespace
}  // namespace tessera::spmd
