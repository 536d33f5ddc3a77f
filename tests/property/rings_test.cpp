// Attention whose queries and keys lie along the same axis gives the result of one rank, with keys gathered and in
// rings (passes/ring_attention.h): all cases, on groups of several sizes, alone and beside split heads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "property/cases.h"
#include "property/trial.h"

namespace tessera::property {
namespace {

Sharding split_along(const Value* value, const std::vector<std::pair<size_t, AxisRef>>& axes) {
  Sharding sharding = Sharding::replicated(value->shape());
  for (const auto& [dim, axis] : axes) sharding.dims[dim].parts[0].axes.push_back(axis);
  return sharding;
}

// How many runs of the subject had rings.
int rings_of(const Subject& subject, const Mesh& mesh) {
  const AxisRef along = AxisRef::whole(mesh.axes().back());
  std::vector<spmd::Annotation> annotations;
  for (size_t operand = 0; operand < 3; ++operand) {
    const Value* value = subject.graph->nodes().front()->inputs[operand];
    std::vector<std::pair<size_t, AxisRef>> axes = {{2, along}};
    if (mesh.axes().size() > 1 && operand == 0) axes.insert(axes.begin(), {1, AxisRef::whole(mesh.axes()[0])});
    annotations.push_back({value, split_along(value, axes), "test"});
  }
  Trials trials(subject);
  trials.run(mesh, annotations);
  return trials.in_rings();
}

std::vector<Subject> attentions() {
  std::vector<Subject> found;
  for (Subject& subject : all_cases())
    if (const Node& node = *subject.graph->nodes().front(); node.is("Attention") && node.inputs[0]->rank() == 4)
      found.push_back(std::move(subject));
  return found;
}

TEST(Rings, GiveTheSameOnEveryMesh) {
  int with = 0, without = 0;
  for (const Subject& subject : attentions())
    for (const char* mesh : {"x=2", "x=3", "x=5", "h=2,x=2", "h=3,x=4"}) {
      SCOPED_TRACE(subject.name + " on " + mesh);
      (rings_of(subject, Mesh::parse(mesh)) > 0 ? with : without)++;
    }
  // Keys in windows, caches, keys as results and masks of fewer keys have none, nor have few queries of many keys.
  EXPECT_GE(with, 80) << without << " runs had no ring";
}

}  // namespace
}  // namespace tessera::property
