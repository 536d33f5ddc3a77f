#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// A model file's statements about itself.
struct FileFacts {
  std::string producer;         ///< name and version; "" if the file has none
  int64_t annotated_nodes = 0;  ///< nodes of the main graph that have a device configuration
};

FileFacts file_facts(const OnnxModel& model);

}  // namespace tessera
