#include "tessera/program_io/trained_files.h"

#include <limits>

#include "tessera/onnx/export.h"
#include "tessera/program_io/plain_step.h"
#include "tessera/train/parameter_values.h"

namespace tessera::program_io {
namespace {

constexpr size_t kExternal = 1024;  // a tensor of at least so many bytes goes to a file beside the model, if any does

// Whether all tensors go into the ONNX file itself.
bool fit_inline(const OnnxModel& model) {
  constexpr size_t kMostInline = size_t{1} << 30;
  size_t bytes = 0;
  for (const Value* state : model.graph->values_of(ValueKind::state)) bytes += state->data.bytes;
  return bytes <= kMostInline;
}

}  // namespace

void write_step(const OnnxModel& stepping, const std::filesystem::path& path) {
  ExportOptions options;
  if (!fit_inline(stepping)) options.external_threshold = kExternal;
  export_model(plain_step(stepping), path, options);
}

void write_trained(const OnnxModel& model, const std::map<std::string, Tensor>& parameters,
                   const std::filesystem::path& path) {
  const OnnxModel trained = model.clone();
  for (const auto& [name, tensor] : parameters) train::set_parameter(*trained.graph, name, tensor);
  // Never where the source has its tensors: that file may be in the same folder.
  ExportOptions options;
  options.external_threshold = fit_inline(trained) ? std::numeric_limits<size_t>::max() : kExternal;
  export_model(trained, path, options);
}

}  // namespace tessera::program_io
