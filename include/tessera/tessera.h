#pragma once

#include "tessera/error.h"
#include "tessera/mesh/mesh.h"
#include "tessera/mesh/topology.h"
#include "tessera/model.h"
#include "tessera/plan.h"
#include "tessera/program.h"
#include "tessera/session.h"
#include "tessera/tensors.h"

/// Loads a model, splits it over a mesh, and runs it:
///
///     tessera::Model model = tessera::Model::load("model.onnx");
///     tessera::Plan plan;
///     plan.presets = "megatron";
///     tessera::Session session(model, tessera::Mesh::parse("tp=2"), plan);
///     tessera::Tensors outputs = session.run({{"x", x}});
///
/// compile() returns the program that a session runs, to inspect (program.h, explain.h), to write for other machines
/// (write.h) or to prove (check.h). Other headers:
///
///     trainer.h      training runs over batches         compare.h         answers against others
///     training.h     training steps, checkpoints        profile.h         where a run's time went
///     generation.h   decoders that continue texts       collectives.h     what links deliver
///     launch.h       ranks as processes                 default_inputs.h  initializers that are inputs
///     inspect.h      what a model has and costs         join.h            models that arrive split
///     time.h         predicted times                    planner.h         plans chosen by these
///     goodput.h      what failures cost a long run
///     report.h       pages that show these
///
/// All functions throw tessera::Error: of kind `user` for what the caller can fix, of kind `running` for the rest.
namespace tessera {
inline namespace v1 {

/// "0.1.0"
std::string_view version();

}  // namespace v1
}  // namespace tessera
