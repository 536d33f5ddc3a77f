#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/cli/options.h"
#include "tessera/cli/time_options.h"
#include "tessera/tessera.h"

/// From a file and options to a program and its inputs.
namespace tessera::cli {

/// The model with the states that the plan names, which then does not name them any more.
Model with_states(const Model& model, Plan& plan);

/// The model in the plan's micro-batches, and a note if it computes across samples (Model::in_micro_batches).
Model in_micro_batches(const Model& model, Plan& plan, const Console& console);

/// The model for the sizes of the plan and these arrays, as far as it must know them before it is compiled
/// (Model::for_program): the arrays that become constants leave `arrays`, the sizes leave the plan, and a note says
/// them. `inputs`: null for a command that takes none. Throws a user error if arrays are given that do not say a size.
Model for_program(const Model& model, Plan& plan, const InputOptions* inputs, Tensors& arrays, const Console& console);

/// A program to run, and what to run it on.
struct Loaded {
  Program program;
  Tensors inputs;              ///< for all steps
  std::optional<Model> model;  ///< none for a written program, or models that are split
  Plan plan;                   ///< completed by the sizes of the inputs
  double compile_ms = 0;       ///< reading and compiling, without the inputs
};

/// Compiles the model at `path`; or reads the written program there, or the models of ranks that are split already,
/// whose plan cannot be changed any more. `time` may name a machine by which choices are made. `fetched`, if any, are
/// the tensors that a model gives in place of its outputs. `check`, if any, may refuse a model before it is compiled
/// and before anything is printed about it. `models`, if any, are those at `path`.
Loaded load_program(const std::string& path, const PlanOptions& plan, const InputOptions& inputs,
                    const TimeOptions& time, const Console& console, const StageObserver& observer = nullptr,
                    const std::vector<std::string>& fetched = {},
                    const std::function<void(const Model&)>& check = nullptr, std::vector<Model> models = {});

}  // namespace tessera::cli
