#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>

namespace tessera {

/// The path of `relative` below `folder` after following symbolic links; nullopt if they, or "..", lead out of the
/// folder. Missing path elements count as no links. Throws std::filesystem::filesystem_error if an element cannot be
/// examined.
inline std::optional<std::filesystem::path> path_within(const std::filesystem::path& folder,
                                                        const std::filesystem::path& relative) {
  if (relative.is_absolute() || std::find(relative.begin(), relative.end(), "..") != relative.end())
    return std::nullopt;
  std::filesystem::path root = std::filesystem::weakly_canonical(folder.empty() ? "." : folder);
  if (!root.has_filename()) root = root.parent_path();  // that of "." may end in a separator
  const std::filesystem::path full = std::filesystem::weakly_canonical(root / relative);
  if (std::mismatch(root.begin(), root.end(), full.begin(), full.end()).first != root.end()) return std::nullopt;
  return full;
}

}  // namespace tessera
