// Runs a model on arrays of a file, and writes what it computes to another:
//   run_files MODEL MESH INPUTS.npz OUTPUTS.npz
// An array of the file may also replace an input's default: an initializer that the model lists among its inputs.
#include <cstdio>

#include "tessera/default_inputs.h"
#include "tessera/error.h"
#include "tessera/tensors.h"
#include "tessera/tessera.h"

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fprintf(stderr, "usage: run_files MODEL MESH INPUTS.npz OUTPUTS.npz\n");
    return 2;
  }
  const tessera::Model model = tessera::fed_by(tessera::Model::load(argv[1]), argv[3]);
  const tessera::Tensors inputs = tessera::read_tensors(argv[3], "input", model.inputs());
  tessera::require_writable(argv[4]);
  tessera::Session session(tessera::compile(model, tessera::Mesh::parse(argv[2])));
  tessera::write_tensors(argv[4], session.run(inputs));
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
