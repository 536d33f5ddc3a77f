#include "tessera/cli/models.h"

#include <algorithm>
#include <filesystem>

#include "tessera/cli/progress.h"
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

std::vector<Model> load_models(const Console& console, const std::string& path) {
  const size_t place = path.rfind(kRank);
  if (place == std::string::npos || std::filesystem::exists(path)) return {load_model(console, path)};
  const Progress progress(console, "reading " + path);
  std::vector<Model> models;
  for (int rank = 0;; ++rank) {
    std::string file = path;
    file.replace(place, kRank.size(), std::to_string(rank));
    if (!models.empty() && !std::filesystem::exists(file)) return models;
    models.push_back(Model::load(file));
  }
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
