#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/options.h"
#include "tessera/tessera.h"

namespace tessera::cli {

/// What a path that commands take as a model stands for, in help.
inline constexpr const char* kModelHelp =
    "an ONNX file; a folder that tessera shard wrote; or the files of ranks that a framework has split, as "
    "'rank_{}.onnx', where {} is the rank's number";

/// The ONNX files at `path`: one, or where it holds "{}", those of rank 0, 1, …, as many as there are. Throws a user
/// error if there is none.
std::vector<Model> load_models(const std::string& path);

/// The same model on one rank, in what `plan` says of sizes and precision: what a mesh is compared with.
Program one_device(const Model& model, const Plan& plan);

/// The program of models that are split already: several, or one that holds collectives. Nullopt for a whole model.
/// What `inputs` calls "x@1" is rank 1's own. Throws a user error for what a plan says of layouts, which stand.
std::optional<Program> join_split(const std::vector<Model>& models, const std::string& path, const PlanOptions& plan,
                                  const Tensors& inputs);

}  // namespace tessera::cli
