#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tessera/compiler/programs.h"
#include "tessera/parts/segmented_model.h"
#include "tessera/tessera.h"

/// The implementations of the public classes.
namespace tessera {
inline namespace v1 {

struct Model::Impl : parts::SegmentedModel {
  using SegmentedModel::SegmentedModel;
};

struct Program::Impl : compiler::CompiledProgram {
  Impl(compiler::CompiledProgram made, ProgramSummary of, std::string from)
      : CompiledProgram(std::move(made)), summary(std::move(of)), source(std::move(from)) {}

  ProgramSummary summary;
  std::string source;        ///< a description of what it was compiled from; empty: it was read
  mutable std::mutex known;  ///< guards figures
  /// By rank and sizes, what has been asked for: each takes a plan of all that the rank does.
  mutable std::map<std::pair<int64_t, SymbolSizes>, RankFigures> figures;
};

}  // namespace v1

namespace api {

/// This model with_sizes() of what must be known before it is compiled, which are added to `fixed`. `sizes` may leave
/// symbols out, as for complete().
Model with_needed_sizes(const Model& model, const SymbolSizes& sizes, SymbolSizes* fixed = nullptr);

/// Another model in place of one that was read from the same files.
Model model_of(const Model& from, OnnxModel changed);

/// The compiler's options for a plan, whose states the model has already.
compiler::ProgramOptions program_options(const Mesh& mesh, const Plan& plan, const CompileOptions& options);

/// A program that was compiled from the model.
Program program_of(compiler::CompiledProgram made, const std::filesystem::path& model, const Plan& plan);
/// Programs that were read.
Program program_of(std::shared_ptr<const runtime::RankPrograms> programs);

}  // namespace api
}  // namespace tessera
