// Fuzzes the importer, and the exporter on accepted models.
#include "fuzz/reader.h"
#include "tessera/onnx/export.h"
#include "tessera/onnx/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::run([&] {
    const tessera::OnnxModel model =
        tessera::import_model_bytes({reinterpret_cast<const char*>(data), size}, "/nowhere");
    model.graph->verify("fuzz");
    tessera::export_model_bytes(model);
  });
  return 0;
}
