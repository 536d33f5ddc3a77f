#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/onnx/external_location.h"

namespace tessera {

struct ExportOptions {
  /// If set, every tensor of at least this many bytes goes into one file beside the model, and all others into the
  /// model. If not, tensors stay where they were: in the model, or in the external file that they came from.
  std::optional<size_t> external_threshold;
  /// That file's path relative to the model's folder; "NAME.data" beside NAME if empty.
  std::string external_file;
  /// Writes the type of every value that has one; by default only of values that the imported file describes, or that
  /// carry metadata.
  bool value_info = false;
  /// Initializers, by name, whose elements the caller writes. The model refers to them, and the exporter does not
  /// touch their data (which may be null; `dims` and `bytes` count).
  std::map<std::string, ExternalLocation> stored;
};

/// Writes a model as an ONNX file, and its external data files beside it. Each file is written under another name,
/// forced to the disk and then renamed, so a failure before the renames leaves old files as they were and no new ones.
/// External data files are renamed before the model.
///
/// Values of kind `expression` whose elements are all constant become initializers; symbolic ones are an internal
/// error. Throws a user error if the path cannot be written or the model needs more than 2 GiB without external data,
/// and a running error if the disk fails (stage "write" for both).
void export_model(const OnnxModel& model, const std::filesystem::path& path, const ExportOptions& options = {});

/// The model as the bytes of an ONNX file, external data included inline.
std::string export_model_bytes(const OnnxModel& model);

}  // namespace tessera
