#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Inputs with a default: initializers that the file also lists among its inputs (from ONNX IR version 4 on). A model
/// treats them as initializers, unless with_inputs() makes them inputs.
namespace tessera {
inline namespace v1 {

/// In the order of the file. Their types are the inputs', whose symbols may have other sizes than the default.
std::vector<TensorInfo> default_inputs(const Model& model);

/// The model with these initializers as inputs, after its others; runs must then pass them. Throws a user error for a
/// name that is not one of default_inputs().
Model with_inputs(const Model& model, const std::vector<std::string>& names);

/// The model with those of its default_inputs() as inputs for which a file has arrays that read_tensors(path, "input",
/// …) takes: by name, or in a folder by number, after the other inputs. Throws as read_tensors does for a file that
/// cannot be read.
Model fed_by(const Model& model, const std::filesystem::path& path);

}  // namespace v1
}  // namespace tessera
