#include "layers/includes.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>

namespace tessera::layers {
namespace {

namespace fs = std::filesystem;

struct Include {
  std::string path;  // "tessera/ir/graph.h"
  int line = 0;
};

std::vector<Include> includes_of(const fs::path& file) {
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"](tessera/[^">]+)[">].*)");
  std::vector<Include> all;
  std::ifstream stream(file);
  std::string text;
  for (int line = 1; std::getline(stream, text); ++line)
    if (std::smatch match; std::regex_match(text, match, pattern)) all.push_back({match[1], line});
  return all;
}

std::vector<fs::path> sources_below(const fs::path& folder) {
  std::vector<fs::path> all;
  if (!fs::exists(folder)) return all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (const fs::path extension = entry.path().extension(); extension == ".h" || extension == ".cpp")
      all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

class Layers {
 public:
  Layers(fs::path root, const std::vector<std::string>& folders) : root_(std::move(root)), folders_(folders) {}

  // The listed folder of "tessera/comm/gloo/plugin.cpp"; none of a public header, or where none is listed.
  std::optional<size_t> folder_of(const std::string& path) const {
    std::optional<size_t> best;
    for (size_t f = 0; f < folders_.size(); ++f)
      if (path.starts_with("tessera/" + folders_[f] + "/") && (!best || folders_[f].size() > folders_[*best].size()))
        best = f;
    return best;
  }

  // The place in the list of a header: its folder's, or of a public one the highest that it includes.
  size_t level_of(const std::string& header) {
    if (const auto folder = folder_of(header)) return *folder;
    const auto [known, added] = public_.emplace(header, 0);
    if (!added) return known->second;
    size_t level = 0;
    for (const Include& include : includes_of(root_ / "include" / header))
      level = std::max(level, level_of(include.path));
    return public_[header] = level;
  }

 private:
  fs::path root_;
  const std::vector<std::string>& folders_;
  std::map<std::string, size_t> public_;
};

}  // namespace

std::vector<std::string> wrong_includes(const fs::path& root, const std::vector<std::string>& folders) {
  Layers layers(root, folders);
  std::vector<std::string> wrong;
  for (const fs::path& file : sources_below(root / "src" / "tessera")) {
    const std::string path = fs::relative(file, root / "src").generic_string();
    const auto folder = layers.folder_of(path);
    if (!folder) continue;
    for (const Include& include : includes_of(file))
      if (const size_t level = layers.level_of(include.path); level > *folder)
        wrong.push_back("src/" + path + ":" + std::to_string(include.line) + ": " + folders[*folder] +
                        "/ stands below " + folders[level] + "/, and must not include \"" + include.path + "\"");
  }
  return wrong;
}

std::vector<std::string> unlisted_folders(const fs::path& root, const std::vector<std::string>& folders) {
  const Layers layers(root, folders);
  std::set<std::string> unlisted;
  for (const fs::path& file : sources_below(root / "src" / "tessera")) {
    const std::string path = fs::relative(file, root / "src").generic_string();
    if (!layers.folder_of(path)) unlisted.insert(fs::path(path).parent_path().generic_string());
  }
  return {unlisted.begin(), unlisted.end()};
}

}  // namespace tessera::layers
