#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// A model file's statements about itself and about devices (IR version 11).
struct FileFacts {
  struct Configuration {
    std::string name;
    int64_t devices = 0;
  };
  std::string producer;  ///< name and version; "" if the file has none
  std::vector<Configuration> configurations;
  int64_t annotated_nodes = 0;  ///< nodes of the main graph that have a device configuration
};

FileFacts file_facts(const OnnxModel& model);

}  // namespace tessera
