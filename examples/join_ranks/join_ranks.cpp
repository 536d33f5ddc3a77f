// Runs a model that another tool has split: one ONNX file per rank, with the communication in them, which take x and
// give y. First proves that the ranks fit together; exits with 1, and says what clashes, if they do not.
//   join_ranks rank_0.onnxtxt rank_1.onnxtxt
#include <cstdio>
#include <vector>

#include "tessera/check.h"
#include "tessera/join.h"

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: join_ranks MODEL OF RANK 0, MODEL OF RANK 1 …\n");
    return 2;
  }
  std::vector<tessera::Model> models;
  for (int rank = 0; rank + 1 < argc; ++rank) models.push_back(tessera::Model::load(argv[rank + 1]));
  const tessera::Program program = tessera::join(models);

  const tessera::CheckReport report = tessera::check_program(program);
  std::printf("%lld ranks, %lld communications\n", static_cast<long long>(report.ranks),
              static_cast<long long>(report.communications));
  for (const tessera::CheckFinding& finding : report.findings)
    std::printf("%s: %s\n", finding.rule.c_str(), finding.message.c_str());
  if (!report.good()) return 1;

  tessera::Session session(program);
  const auto x = tessera::Tensor::of(tessera::DType::float32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  for (float element : session.run({{"x", x}}).at("y").as<float>()) std::printf("%g\n", element);
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
