#include "tessera/spmd/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  std::vector<std::string> warnings;
};

Applied apply(std::string_view text, std::string_view preset, std::string_view mesh) {
  Compiled compiled(text, mesh);
  Applied applied;
  std::vector<Annotation> annotations;
  for (const PresetRequest& request : parse_presets(preset, compiled.mesh)) {
    PresetContext context{*compiled.model.graph, *compiled.layout, compiled.hints, request.axis, "preset",
                          annotations,           applied.warnings};
    request.preset->apply(context);
  }
  for (const Annotation& annotation : annotations)
    applied.annotations.push_back(annotation.value->name + "=" + annotation.sharding.str(compiled.mesh));
  return applied;
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "no error";
}

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

}  // namespace
}  // namespace tessera::spmd
