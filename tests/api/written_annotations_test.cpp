// Plans that are written as device annotations are the same programs when they are followed.
#include "api/annotated.h"
#include "tessera/inspect.h"

namespace tessera::test {
namespace {

using testing::IsEmpty;

class WrittenAnnotations : public DeviceAnnotations,
                           public testing::WithParamInterface<std::tuple<std::string, std::string>> {};

// What Tessera decides, written as annotations, is the same program when it is followed.
TEST_P(WrittenAnnotations, ComeBack) {
  const auto& [name, mesh] = GetParam();
  const Model read =
      Model::load(name == "tiny" ? std::filesystem::path(TESSERA_EXAMPLES) / "tiny" / "model.onnx"
                                 : std::filesystem::path(TESSERA_TEST_DATA) / "models" / name / "model.onnx");
  Plan plan;
  if (mesh.starts_with("pp"))
    for (const char* place : {"m.transformer.wte=pp:0", "m.transformer.wpe=pp:0", "m.transformer.h.0=pp:0",
                              "m.transformer.h.1=pp:1", "m.transformer.ln_f=pp:1", "m.lm_head=pp:1"})
      plan.places.push_back({place, "place"});
  const Program program = compile(read, Mesh::parse(mesh), plan);
  read.annotated(program.mesh(), plan, "ours").write(folder_ / "annotated.onnx");
  const Model annotated = Model::load(folder_ / "annotated.onnx");
  EXPECT_THAT(faults(annotated), IsEmpty());
  const ConfiguredModel configured = annotated.configured("ours");
  EXPECT_THAT(configured.warnings, IsEmpty());
  EXPECT_EQ(configured.plan.mesh, program.mesh().str());
  const Program again = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
  auto communication = [](const Program& of) {
    std::vector<std::tuple<std::string, std::vector<std::string>, int64_t, int64_t>> all;
    for (const CollectiveSummary& entry : of.summary().collectives)
      all.emplace_back(entry.kind, entry.axes, entry.count, entry.bytes);
    std::sort(all.begin(), all.end());
    return all;
  };
  EXPECT_EQ(communication(again), communication(program));
  for (int64_t rank = 0; rank < program.mesh().size(); ++rank)
    EXPECT_EQ(again.figures(rank).parameter_bytes, program.figures(rank).parameter_bytes);
  const Tensors inputs = random_inputs(read, read.complete({}), 3);
  expect_same(Session(again, one_thread()).run(inputs), Session(program, one_thread()).run(inputs));
  const Model completed = annotated.completed("ours");
  EXPECT_THAT(faults(completed), IsEmpty());
  // Completed, an expert is where its parameters lie, bodies name their tensors, and each stage's tensors their place.
  if (name.starts_with("moe") || name == "control-flow" || mesh.starts_with("pp")) return;
  const ConfiguredModel all = completed.configured("ours");
  const Program of_all = compile(all.model, Mesh::parse(all.plan.mesh), all.plan);
  EXPECT_EQ(communication(of_all), communication(program));
  EXPECT_EQ(of_all.figures(0).flops, program.figures(0).flops) << "what is said inside keeps nothing from being raised";
}

INSTANTIATE_TEST_SUITE_P(Models, WrittenAnnotations,
                         testing::Combine(testing::Values("mlp", "gpt2", "tiny", "llama", "resnet"),
                                          testing::Values("tp=2", "dp=2,tp=3")));
INSTANTIATE_TEST_SUITE_P(BodiesAndExperts, WrittenAnnotations,
                         testing::Combine(testing::Values("control-flow", "moe-scan", "moe-stacks"),
                                          testing::Values("tp=2")));
INSTANTIATE_TEST_SUITE_P(ExpertsOfTheirOwn, WrittenAnnotations,
                         testing::Combine(testing::Values("moe-masks", "moe-apart"),
                                          testing::Values("tp=2", "ep=4", "ep=2,tp=2", "dp=2,ep=3")));
INSTANTIATE_TEST_SUITE_P(Stages, WrittenAnnotations,
                         testing::Combine(testing::Values("gpt2"), testing::Values("pp=2,tp=2")));

}  // namespace
}  // namespace tessera::test
