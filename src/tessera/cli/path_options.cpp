#include "tessera/cli/path_options.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// Filled while commands declare their options, which live as long as the process.
std::map<const CLI::Option*, PathOption>& path_registry() {
  static std::map<const CLI::Option*, PathOption> all;
  return all;
}

const char* word_of_use(PathUse use) {
  switch (use) {
    case PathUse::reads:
      return "INPUT";
    case PathUse::writes:
      return "OUTPUT";
    case PathUse::replaces:
    case PathUse::adds:
      return "FOLDER";
  }
  return "";
}

/// One path that the command was given.
struct UsedPath {
  std::string option, text;
  PathUse use;
  fs::path place;                 // without links
  std::optional<struct stat> at;  // what is there
};

// Where a path leads, links resolved, also that of a link to a file that is still to be made.
fs::path place_of_path(const std::string& text) {
  std::error_code error;
  fs::path path = fs::absolute(text, error);
  if (!path.has_filename()) path = path.parent_path();
  constexpr int kMostLinks = 40;  // as the system follows
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);
  const fs::path place = fs::weakly_canonical(path, error);
  return error ? path.lexically_normal() : place;
}

// Devices and pipes hold nothing that could be destroyed.
bool may_hold_data(const UsedPath& used) {
  return !used.at || S_ISREG(used.at->st_mode) || S_ISDIR(used.at->st_mode);
}

void add_used(std::vector<UsedPath>& all, const std::string& option, const std::string& text, PathUse use) {
  if (text.empty()) return;
  UsedPath used{option, text, use, place_of_path(text), std::nullopt};
  struct stat status = {};
  if (stat(text.c_str(), &status) == 0) used.at = status;
  if (may_hold_data(used)) all.push_back(std::move(used));
}

std::vector<UsedPath> paths_used_by(const CLI::App& app) {
  std::vector<UsedPath> all;
  for (const CLI::Option* option : app.get_options()) {
    const auto found = path_registry().find(option);
    if (found == path_registry().end()) continue;
    const PathOption& declared = found->second;
    for (const std::string& value : option->results())
      for (const std::string& path : declared.paths_in ? declared.paths_in(value) : std::vector<std::string>{value}) {
        add_used(all, option->get_name(), path, declared.use);
        // The tensors of a large model go to a file beside it.
        if (declared.use == PathUse::writes && path.ends_with(".onnx"))
          add_used(all, option->get_name(), path + ".data", declared.use);
      }
  }
  for (const CLI::App* chosen : app.get_subcommands()) {
    const std::vector<UsedPath> more = paths_used_by(*chosen);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

bool are_one(const UsedPath& a, const UsedPath& b) {
  return a.place == b.place || (a.at && b.at && a.at->st_dev == b.at->st_dev && a.at->st_ino == b.at->st_ino);
}

bool lies_in(const UsedPath& inner, const UsedPath& outer) {
  const auto [end, rest] =
      std::mismatch(outer.place.begin(), outer.place.end(), inner.place.begin(), inner.place.end());
  return end == outer.place.end() && rest != inner.place.end();
}

// Whether what happens to `inner`, which lies in `outer`, spoils either.
bool spoils(const UsedPath& inner, const UsedPath& outer) {
  return outer.use == PathUse::replaces || (outer.use == PathUse::reads && inner.use != PathUse::reads);
}

// "--metrics 'd'"
std::string words_of_path(const UsedPath& used) {
  return used.option + " '" + used.text + "'";
}

[[noreturn]] void refuse_output(const UsedPath& output, const UsedPath& other, const std::string& why) {
  throw Error(ErrorKind::user, "paths",
              words_of_path(output) + " " + why + " " + words_of_path(other) + "; give " + output.option +
                  " a path of its own");
}

void require_two_apart(const UsedPath& a, const UsedPath& b) {
  const auto& [output, other] = a.use == PathUse::reads ? std::pair(b, a) : std::pair(a, b);
  if (output.use == PathUse::reads || (a.use == PathUse::adds && b.use == PathUse::adds)) return;
  if (are_one(output, other)) refuse_output(output, other, "would overwrite");
  if (lies_in(output, other) && spoils(output, other)) refuse_output(output, other, "would go into");
  if (lies_in(other, output) && spoils(other, output)) refuse_output(output, other, "would replace the folder of");
}

}  // namespace

void declare_paths(CLI::App& app, const std::vector<PathOption>& options) {
  for (const PathOption& declared : options) {
    CLI::Option* option = app.get_option(declared.name);
    path_registry()[option] = declared;
    option->type_name(word_of_use(declared.use));
  }
}

void require_paths_apart(const CLI::App& app) {
  const std::vector<UsedPath> all = paths_used_by(app);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = i + 1; j < all.size(); ++j)
      if (all[i].option != all[j].option) require_two_apart(all[i], all[j]);
}

}  // namespace tessera::cli
