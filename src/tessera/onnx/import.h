#pragma once

#include <filesystem>
#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera {

/// Whether the file's name says that it holds ONNX's text syntax (ir/text.h): ".onnxtxt" or ".onnxtext", as onnx.save
/// has it.
bool is_text_model(const std::filesystem::path& path);

/// Reads an ONNX model, protobuf or text: IR versions 3 to 14, operator sets 1 to 28 of the default domain.
/// Initializers that a text declares without data are zeros.
///
/// Nothing in the file is lost: the `extra` strings keep everything that the IR does not model, and exporting the model
/// unchanged gives an equal message with identical tensor bytes. Files are mapped, not read: large initializers, inline
/// or external, are views of the map, so files must not be modified in place while the model lives (replacing them, as
/// export does, is fine).
///
/// - Floating-point initializers with rank ≥ 1 and more than one element become states, all others constants.
/// - A dimension without a name or extent is a symbol of its own, "NAME_dim_I".
/// - Nodes that are not in topological order in the file are sorted.
/// - Regions of nodes: see Node::captures.
/// - The domain "ai.onnx" reads as "".
///
/// Throws user errors, stage "import" ("graph" for a cycle), for anything missing, damaged or not supported.
/// `identities`, if given, receives the identities of the files that were read (MappedFile::identity).
OnnxModel import_model(const std::filesystem::path& path, std::vector<uint64_t>* identities = nullptr);

/// The same from memory, which is copied; external data are read from `base_dir`.
OnnxModel import_model_bytes(std::string_view bytes, const std::filesystem::path& base_dir = {});

}  // namespace tessera
