#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tessera/compiler/compile.h"
#include "tessera/onnx/import.h"

/// The shared models, as programs for a mesh.
namespace tessera::test {

inline std::filesystem::path folder_of(const std::string& model) {
  if (model == "tiny") return std::filesystem::path(TESSERA_EXAMPLES) / "tiny";
  return std::filesystem::path(TESSERA_TEST_DATA) / "models" / model;
}

inline std::shared_ptr<spmd::Program> compile_on(const std::string& model, const std::string& mesh,
                                                 const std::string& preset = "") {
  compiler::CompileOptions options;
  options.mesh = Mesh::parse(mesh);
  options.presets = preset;
  if (model == "tiny") options.shapes = {{"batch", 3}, {"sequence", 37}};  // sums large enough for rings
  return compiler::compile(import_model(folder_of(model) / "model.onnx"), options).program;
}

}  // namespace tessera::test
