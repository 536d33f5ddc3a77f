// Runs a model on random inputs and lists the operators that took rank 0 the longest:
//   slowest_operators MODEL [MESH]
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/inspect.h"
#include "tessera/profile.h"

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: slowest_operators MODEL [MESH, as tp=2]\n");
    return 2;
  }
  const auto model = tessera::Model::load(argv[1]);
  const auto program = tessera::compile(model, tessera::Mesh::parse(argc > 2 ? argv[2] : ""));
  tessera::SessionOptions options;
  options.profile = true;
  tessera::Session session(program, options);
  const tessera::Tensors inputs = tessera::random_inputs(model, {}, 1);
  session.run(inputs);  // the first run loads weights
  session.run(inputs);

  const tessera::Profile profile = session.profile();
  const tessera::RankProfile& rank = profile.ranks.front();
  std::printf("%.0f us: %.0f computing, %.0f communicating, %.0f waiting for other ranks\n", profile.duration,
              rank.compute, rank.exposed, rank.idle);
  std::map<std::string, double> by_operator;
  for (const tessera::ProfileEvent& event : rank.events) by_operator[event.op] += event.duration;
  std::vector<std::pair<double, std::string>> slowest;
  for (const auto& [op, duration] : by_operator) slowest.emplace_back(duration, op);
  std::sort(slowest.rbegin(), slowest.rend());
  for (size_t i = 0; i < std::min<size_t>(slowest.size(), 5); ++i)
    std::printf("%8.0f us  %s\n", slowest[i].first, slowest[i].second.c_str());
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
