#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/options.h"
#include "tessera/tessera.h"

namespace tessera::cli {

/// The help text for a path that commands take as a model.
inline constexpr const char* kModelHelp =
    "an ONNX file; a folder that tessera shard wrote; or the files of ranks that a framework has split, as "
    "'rank_{}.onnx', where {} is the rank's number";

/// The ONNX file at `path`, as Model::load reads it.
Model load_model(const Console& console, const std::string& path);
/// The paths of the ONNX files at `path`, as load_models reads them.
std::vector<std::string> model_paths(const std::string& path);
/// The files that a command reads for the model at `path`: those of model_paths, or those of the program in the folder
/// `path`, beside which there may be others. Names alone decide; no file is opened.
std::vector<std::string> files_of_model(const std::string& path);
/// The ONNX files at `path`: one or, if `path` holds "{}", those of rank 0, 1, …, as many as exist. Throws a user error
/// if there is none.
std::vector<Model> load_models(const Console& console, const std::string& path);

/// The tensors that texts of an option name: each text is the name of one, or several names with commas between.
std::vector<std::string> tensors_named(const Model& model, const std::vector<std::string>& texts);

/// The plan's sizes and precision alone.
Plan one_device_plan(const Plan& plan);
/// The same model on one rank, with the plan's sizes and precision, for comparison with a mesh.
Program one_device(const Model& model, const Plan& plan);

/// The program of models that are already split: several, or one that holds collectives. Nullopt for a whole model. An
/// array "x@1" in `inputs` is rank 1's own. Throws a user error if a plan states layouts, since these are fixed.
std::optional<Program> join_split(const Console& console, const std::vector<Model>& models, const std::string& path,
                                  const PlanOptions& plan, const Tensors& inputs);

}  // namespace tessera::cli
