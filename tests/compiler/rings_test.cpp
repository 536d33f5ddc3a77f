// Exported models whose sequence is split, with keys that go around rings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/answers.h"

namespace tessera::compiler {
namespace {

struct Rings : testing::TestWithParam<std::pair<std::string, int>> {};

TEST_P(Rings, GiveTheExportersAnswers) {
  const auto& [model, attentions] = GetParam();
  for (const std::string mesh : {"sp=2", "sp=3", "sp=5", "tp=2,sp=2"}) {
    SCOPED_TRACE(mesh);
    CompileOptions options;
    options.mesh = Mesh::parse(mesh);
    options.ring_attention = passes::RingAttention::always;
    options.annotations = {AnnotationRequest::parse("input_ids=[-,sp]", "test")};
    if (mesh.starts_with("tp")) options.presets = "megatron";
    const Compiled compiled = compile(import_model(folder_of(model) / "model.onnx"), options);
    EXPECT_THAT(compiled.notes,
                testing::Contains(testing::HasSubstr(fmt::format("{} Attentions go around", attentions))));
    expect_answers(model, compiled, mesh);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Rings,
                         testing::Values(std::pair("gpt2", 3), std::pair("gpt2-sdpa", 2), std::pair("llama", 2)),
                         [](const auto& info) { return "Of" + std::to_string(info.index); });

}  // namespace
}  // namespace tessera::compiler
