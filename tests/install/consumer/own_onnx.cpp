// Reads a model by Tessera, and by protobuf classes of its own: own_onnx MODEL
#include <cstdio>
#include <fstream>
#include <string>

#include "onnx.pb.h"
#include "tessera/inspect.h"
#include "tessera/tessera.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  onnx::ModelProto own;
  std::ifstream file(argv[1], std::ios::binary);
  if (!own.ParseFromIstream(&file)) return 1;
  const tessera::Inspection seen = tessera::inspect(tessera::Model::load(argv[1]));
  int64_t nodes = 0;
  for (const tessera::OperatorCount& count : seen.read) nodes += count.count;
  std::printf("own classes: IR version %lld, %d nodes; Tessera: IR version %lld, %lld nodes\n",
              static_cast<long long>(own.ir_version()), own.graph().node_size(),
              static_cast<long long>(seen.ir_version), static_cast<long long>(nodes));
  return own.ir_version() == seen.ir_version && own.graph().node_size() == nodes ? 0 : 1;
}
