#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tessera/compiler/programs.h"
#include "tessera/parts/segmented_model.h"
#include "tessera/rewrite/blocks.h"
#include "tessera/tessera.h"

/// The implementations of the public classes.
namespace tessera {
inline namespace v1 {

struct Model::Impl : parts::SegmentedModel {
  using SegmentedModel::SegmentedModel;

  /// Found at the first call.
  const std::optional<rewrite::Blocks>& blocks() const {
    std::call_once(searched_, [this] { blocks_ = rewrite::find_blocks(model); });
    return blocks_;
  }

 private:
  mutable std::once_flag searched_;
  mutable std::optional<rewrite::Blocks> blocks_;
};

struct Program::Impl : compiler::CompiledProgram {
  Impl(compiler::CompiledProgram made, ProgramSummary of, std::string from)
      : CompiledProgram(std::move(made)), summary(std::move(of)), source(std::move(from)) {}

  ProgramSummary summary;
  std::string source;        ///< describes what it was compiled from; empty: it was read
  mutable std::mutex known;  ///< guards figures
  /// By rank and sizes. Each takes a plan of all that the rank does, so it is kept.
  mutable std::map<std::pair<int64_t, SymbolSizes>, RankFigures> figures;
};

}  // namespace v1

namespace api {

/// The model with those sizes fixed that must be known before it is compiled; they are added to `fixed`. `sizes` may
/// omit symbols, as for complete().
Model with_needed_sizes(const Model& model, const SymbolSizes& sizes, SymbolSizes* fixed = nullptr);

/// A changed model, which keeps the path and the files of `from`.
Model model_of(const Model& from, OnnxModel changed);

/// The compiler's options for a plan, except for its states: the model has them already.
compiler::ProgramOptions program_options(const Mesh& mesh, const Plan& plan, const CompileOptions& options);

/// A program that was compiled from the model.
Program program_of(compiler::CompiledProgram made, const std::filesystem::path& model, const Plan& plan);
/// Programs that were read.
Program program_of(std::shared_ptr<const runtime::RankPrograms> programs);

}  // namespace api
}  // namespace tessera
