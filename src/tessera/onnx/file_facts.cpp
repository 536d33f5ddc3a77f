#include "tessera/onnx/file_facts.h"

#include "tessera/base/error.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/device_annotations.h"

namespace tessera {

FileFacts file_facts(const OnnxModel& model) {
  FileFacts facts;
  onnx::ModelProto rest;
  check(rest.ParseFromString(model.extra), "what was kept of a model can be read back");
  facts.producer = rest.producer_name();
  if (!rest.producer_version().empty()) facts.producer += " " + rest.producer_version();
  facts.annotated_nodes = count_annotated(model);
  return facts;
}

}  // namespace tessera
