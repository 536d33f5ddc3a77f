#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/cli/options.h"
#include "tessera/tessera.h"

/// From a file and options to a program and its inputs.
namespace tessera::cli {

/// The model with the states that the plan names, which then does not name them any more.
Model with_states(const Model& model, Plan& plan);

/// The model with the values that decide its shapes, which leave `arrays`; the model itself if nothing but sizes does.
/// Throws a user error if no inputs are given, if steps have values of their own, and for a model that runs in parts.
Model with_given_values(const Model& model, const InputOptions& inputs, Tensors& arrays);
/// The model with sizes of the symbols that must be known before it is compiled (Model::size_symbols): those of the
/// plan, which leave it, and defaults, unless arrays are given; a note says them. The model itself if there are none.
/// `inputs`: null for a command that takes none. Throws a user error if arrays are given that do not say a size.
Model sized_as_needed(const Model& model, Plan& plan, const InputOptions* inputs, const Console& console);
/// Whether the model runs in parts, once the elements and sizes on which its shapes depend are those that `inputs`
/// give; without arrays, the sizes are `sizes` and defaults.
bool will_run_in_parts(const Model& model, const InputOptions& inputs, const SymbolSizes& sizes);

/// A program to run, and what to run it on.
struct Loaded {
  Program program;
  Tensors inputs;              ///< for all steps
  std::optional<Model> model;  ///< none for a written program, or models that are split
  Plan plan;                   ///< completed by the sizes of the inputs
  double compile_ms = 0;       ///< reading and compiling, without the inputs
};

/// Compiles the model at `path`; or reads the written program there, or the models of ranks that are split already,
/// whose plan cannot be changed any more. `fetched`, if any, are the tensors that a model gives in place of its
/// outputs. `check`, if any, may refuse a model before it is compiled and before anything is printed about it.
/// `models`, if any, are those at `path`.
Loaded load_program(const std::string& path, const PlanOptions& plan, const InputOptions& inputs,
                    const Console& console, const StageObserver& observer = nullptr,
                    const std::vector<std::string>& fetched = {},
                    const std::function<void(const Model&)>& check = nullptr, std::vector<Model> models = {});

}  // namespace tessera::cli
