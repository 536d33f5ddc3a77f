#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/mesh/topology.h"
#include "tessera/sim/predict.h"

/// What a trace says of the runs in it beside their times: the machine programs of all ranks, and under which
/// conditions they ran. With these, the simulator can repeat the runs.
namespace tessera::whatif {

using Json = nlohmann::ordered_json;

struct Recording {
  Mesh mesh;
  Topology topology;               ///< of the mesh's links; empty: unknown
  std::string engine = "threads";  ///< that carried the bytes
  std::string device = "cpu";
  sim::RunConditions conditions;
  int cores = 0;  ///< of the machine, which ranks share
  bool overlap = true;
  Symbols sizes;
  std::vector<sim::ClassWork> ranks;  ///< steps have descriptions and costs, but no kernels and no places

  bool is_asynchronous() const;
  /// Whether communications go on by themselves between their start and their wait.
  bool moves_in_background() const;
  /// The names of the links that a communication uses: levels of the topology, or the engine.
  std::vector<std::string> links_of(const bind::Step& step) const;
};

/// The recording of runs of a program as `run` plans it.
Recording record(const runtime::DryRun& run, const Topology& topology, const std::string& engine);

Json to_json(const Recording& recording);
/// Throws a user error that names `source` for what to_json() does not write.
Recording from_json(const Json& json, const std::string& source);

}  // namespace tessera::whatif
