#pragma once

#include <filesystem>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"
#include "tessera/plan.h"

/// Plans in the metadata of ONNX models, which Model::write_annotated() writes.
namespace tessera::compiler {

/// The plan in a model's metadata; an empty one if it has none. Throws as Plan::from_json() does, and names `path`.
Plan noted_plan(const OnnxModel& model, const std::filesystem::path& path);

/// Notes the plan in the model's metadata and, for other readers, each annotation in the metadata of the values that it
/// names.
void note_plan(OnnxModel& model, const Plan& plan);

/// The smallest mesh that has the plan's axes and places, where its mesh leaves sizes open.
Mesh smallest_mesh(const Plan& plan);

}  // namespace tessera::compiler
