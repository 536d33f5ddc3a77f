#pragma once

#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Programs that already contain collectives: a framework has split the model into one ONNX file per rank, or one for
/// all ranks. Collectives may be Tessera's (domain tessera.comm), ONNX Runtime's or TensorRT's; see docs/dialects.md.
///
///     std::vector<tessera::Model> models = {tessera::Model::load("rank_0.onnx"), tessera::Model::load("rank_1.onnx")};
///     tessera::Session session(tessera::join(models));
///     tessera::Tensors outputs = session.run({{"x", x}});
namespace tessera {
inline namespace v1 {

struct JoinOptions {
  /// Inputs and outputs that differ between ranks: "x" becomes "x@0", "x@1", …, one for each rank that has it. Every
  /// other input is one array, which every rank gets as it is. Every other output must be the same on all ranks that
  /// return it, which check_program proves.
  std::vector<std::string> own;
  SymbolSizes shapes;  ///< the sizes that byte counts assume
};

/// Whether the model holds collectives, or belongs to a written program and states that its tensors are shares.
/// compile() cannot split such a model.
bool has_collectives(const Model& model);

/// The program in which rank i runs model i; if there is one model, all ranks of the mesh run it. Without axes, the
/// mesh is one axis with one rank per model, whose name is the one that their nodes give it. Nothing is split: each
/// rank runs its model, rewritten like any other. An output comes from the lowest rank whose model has it.
///
/// Throws user errors that name the rank and the node: a number of models that differs from the mesh's ranks, groups
/// that follow none of its axes, inputs of one name and two types, and whatever compile() would refuse in the models.
/// check_program proves that the ranks fit together, and so does a Session before it runs.
Program join(const std::vector<Model>& models, const Mesh& mesh = {}, const JoinOptions& options = {});

}  // namespace v1
}  // namespace tessera
