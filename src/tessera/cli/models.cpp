#include "tessera/cli/models.h"

#include <algorithm>
#include <filesystem>

#include "tessera/cli/progress.h"
#include "tessera/inspect.h"
#include "tessera/join.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kRank = "{}";

// "x" of "x@12".
std::optional<std::string> owned_input(const std::string& array) {
  const size_t at = array.rfind('@');
  if (at == std::string::npos || at + 1 == array.size()) return std::nullopt;
  if (array.find_first_not_of("0123456789", at + 1) != std::string::npos) return std::nullopt;
  return array.substr(0, at);
}

}  // namespace

Model load_model(const Console& console, const std::string& path) {
  const Progress progress(console, "reading " + path);
  return Model::load(path);
}

std::vector<std::string> model_paths(const std::string& path) {
  const size_t place = path.rfind(kRank);
  if (place == std::string::npos || std::filesystem::exists(path)) return {path};
  std::vector<std::string> paths;
  for (int rank = 0;; ++rank) {
    std::string file = path;
    file.replace(place, kRank.size(), std::to_string(rank));
    if (!paths.empty() && !std::filesystem::exists(file)) return paths;
    paths.push_back(file);
  }
}

std::vector<std::string> files_of_model(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return model_paths(path);
  const std::vector<std::filesystem::path> files = files_of_written(path);
  return {files.begin(), files.end()};
}

std::vector<Model> load_models(const Console& console, const std::string& path) {
  const std::vector<std::string> paths = model_paths(path);
  if (paths.size() == 1) return {load_model(console, paths.front())};
  const Progress progress(console, "reading " + path);
  std::vector<Model> models;
  for (const std::string& file : paths) models.push_back(Model::load(file));
  return models;
}

std::vector<std::string> tensors_named(const Model& model, const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    if (makes(model, text)) {
      names.push_back(text);
      continue;
    }
    for (size_t begin = 0; begin <= text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      names.push_back(text.substr(begin, comma - begin));
      begin = comma + 1;
    }
  }
  return names;
}

Plan one_device_plan(const Plan& plan) {
  Plan alone;
  alone.shapes = plan.shapes;
  alone.dtype = plan.dtype;
  return alone;
}

Program one_device(const Model& model, const Plan& plan) {
  return compile(model, Mesh(), one_device_plan(plan));
}

std::optional<Program> join_split(const Console& console, const std::vector<Model>& models, const std::string& path,
                                  const PlanOptions& plan, const Tensors& inputs) {
  if (models.size() == 1 && !has_collectives(models[0])) {
    if (!plan.own.empty())
      throw Error(ErrorKind::user, "join",
                  "--own says what each rank of models that arrive split has on its own, but " + path +
                      " is a whole model; leave it out");
    return std::nullopt;
  }
  plan.refuse_for_split(path);
  JoinOptions options;
  options.shapes = parse_shapes(plan.shapes);
  options.own = plan.own;
  for (const auto& [name, array] : inputs)
    if (auto input = owned_input(name)) options.own.push_back(*input);
  const Progress progress(console, "compiling");
  return join(models, plan.mesh_text.empty() ? Mesh() : Mesh::parse(plan.mesh_text), options);
}

}  // namespace tessera::cli
