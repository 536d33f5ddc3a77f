#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "tessera/ir/graph.h"

/// The ONNX files that training leaves. Tensors are in the file itself where they fit, else in one beside it.
namespace tessera::program_io {

/// Writes a model whose states step as plain_step() has it.
void write_step(const OnnxModel& stepping, const std::filesystem::path& path);

/// Writes a model with these values of its parameters. Throws as train::set_parameter() and export_model() do.
void write_trained(const OnnxModel& model, const std::map<std::string, Tensor>& parameters,
                   const std::filesystem::path& path);

}  // namespace tessera::program_io
