#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

namespace tessera {

/// Where a relative path leads from a folder after following symbolic links and ".."; nullopt if that is outside of all
/// `folders`, or if the path is absolute. Searches the folders in order and takes the first file that exists. Missing
/// path elements are not links. Throws std::filesystem::filesystem_error if an element cannot be examined.
inline std::optional<std::filesystem::path> path_within(const std::vector<std::filesystem::path>& folders,
                                                        const std::filesystem::path& relative) {
  namespace fs = std::filesystem;
  if (relative.is_absolute()) return std::nullopt;
  std::vector<fs::path> roots;
  for (const fs::path& folder : folders) {
    roots.push_back(fs::weakly_canonical(folder.empty() ? "." : folder));
    if (!roots.back().has_filename()) roots.back() = roots.back().parent_path();  // that of "." may end in a separator
  }
  std::optional<fs::path> missing;
  bool leads_out = false;
  for (const fs::path& from : roots) {
    const fs::path full = fs::weakly_canonical(from / relative);
    const bool is_within = std::any_of(roots.begin(), roots.end(), [&](const fs::path& root) {
      return std::mismatch(root.begin(), root.end(), full.begin(), full.end()).first == root.end();
    });
    const bool exists = fs::exists(full);
    if (is_within && exists) return full;
    if (is_within && !missing) missing = full;
    leads_out = leads_out || (!is_within && exists);
  }
  return leads_out ? std::nullopt : missing;
}

}  // namespace tessera
