// Fuzzes the parser of ONNX's text syntax, and the printer on accepted models.
#include "fuzz/reader.h"
#include "tessera/ir/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::run([&] {
    const tessera::OnnxModel model = tessera::parse_text({reinterpret_cast<const char*>(data), size});
    model.graph->verify("fuzz");
    tessera::print_text(model);
  });
  return 0;
}
