#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// Which file includes which, and whether that fits the order of the folders.
namespace tessera::layers {

/// Reads the sources of `root` (include/tessera and src/tessera). Every `#include "tessera/…"` that does not stand
/// below its file, as "FILE:LINE: …" relative to `root`. `folders`: of src/tessera, bottom to top; a folder within
/// another ("spmd/presets") is one of its own if it is listed.
///
/// A folder includes itself and those before it. A public header, include/tessera/*.h, stands where the highest of the
/// folders stands that it includes, itself or through other headers.
///
/// Example: with the folders base, ir, mesh, a file of ir that includes "tessera/mesh/mesh.h" is wrong, and so is one
/// that includes "tessera/tessera.h", which includes that.
std::vector<std::string> wrong_includes(const std::filesystem::path& root, const std::vector<std::string>& folders);

/// Folders of src/tessera with sources in them that are not in the list, nor below a folder that is.
std::vector<std::string> unlisted_folders(const std::filesystem::path& root, const std::vector<std::string>& folders);

}  // namespace tessera::layers
