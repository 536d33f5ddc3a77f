#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/tensors.h"

namespace tessera {

/// The names under which read_tensors(path, "input", ports) finds tensors. One that a folder names otherwise belongs to
/// the port of its number.
std::vector<std::string> names_in(const std::filesystem::path& path, const std::vector<TensorInfo>& ports);

}  // namespace tessera
