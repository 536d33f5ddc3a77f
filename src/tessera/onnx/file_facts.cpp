#include "tessera/onnx/file_facts.h"

#include "onnx.pb.h"
#include "tessera/base/error.h"

namespace tessera {

FileFacts file_facts(const OnnxModel& model) {
  FileFacts facts;
  onnx::ModelProto rest;
  check(rest.ParseFromString(model.extra), "what was kept of a model can be read back");
  facts.producer = rest.producer_name();
  if (!rest.producer_version().empty()) facts.producer += " " + rest.producer_version();
  for (const auto& configuration : rest.configuration())
    facts.configurations.push_back({configuration.name(), configuration.num_devices()});
  for (const auto& node : model.graph->nodes()) {
    if (node->extra.empty()) continue;
    onnx::NodeProto message;
    check(message.ParseFromString(node->extra), "what was kept of a node can be read back");
    facts.annotated_nodes += message.device_configurations_size() > 0;
  }
  return facts;
}

}  // namespace tessera
