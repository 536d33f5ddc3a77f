// Runs a model on two ranks: hello model.onnx [MESH]
#include <cstdio>

#include "tessera/inspect.h"
#include "tessera/tessera.h"

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: hello model.onnx [MESH, as tp=2]\n");
    return 2;
  }
  tessera::Model model = tessera::Model::load(argv[1]);
  tessera::Mesh mesh = tessera::Mesh::parse(argc > 2 ? argv[2] : "tp=2");

  // The names of the mesh's axes imply their presets; a plan can say more: presets, annotations, sizes.
  tessera::Plan plan;
  tessera::Program program = tessera::compile(model, mesh, plan);
  for (const tessera::CollectiveSummary& collective : program.summary().collectives)
    std::printf("%s: %lld times, %lld bytes\n", collective.kind.c_str(), static_cast<long long>(collective.count),
                static_cast<long long>(collective.bytes));

  tessera::Session session(program);
  tessera::Tensors outputs = session.run(tessera::random_inputs(model, {}, 1));
  for (const auto& [name, tensor] : outputs)
    std::printf("%s: %lld elements\n", name.c_str(), static_cast<long long>(tensor.count()));
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
