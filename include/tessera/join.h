#pragma once

#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Programs that arrive with collectives in them: a framework has split the model already, into one ONNX file per rank,
/// or one for all. Collectives may be ours (domain tessera.comm), ONNX Runtime's or TensorRT's; see docs/dialects.md.
///
///     std::vector<tessera::Model> models = {tessera::Model::load("rank_0.onnx"), tessera::Model::load("rank_1.onnx")};
///     tessera::Session session(tessera::join(models));
///     tessera::Tensors outputs = session.run({{"x", x}});
namespace tessera {
inline namespace v1 {

struct JoinOptions {
  /// Inputs and outputs that each rank has on its own: "x" becomes "x@0", "x@1", …, one for every rank that has it. All
  /// other inputs are one array, which every rank takes as it is, and all other outputs have to be the same on all
  /// ranks that give them, which check_program proves.
  std::vector<std::string> own;
  SymbolSizes shapes;  ///< sizes that sums of bytes assume
};

/// Whether the model holds collectives, or is a written program's that says of its tensors that they are shares; and so
/// is no whole model that compile() could split.
bool has_collectives(const Model& model);

/// The program of ranks that run these models, in their order; or of all ranks of the mesh, if there is one model.
/// Without axes, the mesh is one axis of as many ranks as there are models, of the name that their nodes give it.
/// Nothing is split: each rank runs its model, rewritten as any other. An output comes from the lowest rank whose model
/// gives it.
///
/// Throws user errors that name the rank and the node: models that are not as many as the mesh has ranks, groups that
/// are none of its axes, inputs of one name and two types, and whatever compile() would refuse in them. Whether the
/// ranks fit together is what check_program proves, and a Session before it runs.
Program join(const std::vector<Model>& models, const Mesh& mesh = {}, const JoinOptions& options = {});

}  // namespace v1
}  // namespace tessera
