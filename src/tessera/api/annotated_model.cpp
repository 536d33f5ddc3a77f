#include "tessera/api/impl.h"
#include "tessera/compiler/plan_metadata.h"

namespace tessera {
inline namespace v1 {

Plan Model::plan() const {
  return compiler::noted_plan(impl().model, impl().path);
}

void Model::write_annotated(const std::filesystem::path& path, const Plan& plan) const {
  compile(*this, compiler::smallest_mesh(plan), plan);  // shows whether the plan can be followed
  OnnxModel annotated = impl().model.clone();
  compiler::note_plan(annotated, plan);
  api::model_of(*this, std::move(annotated)).write(path);
}

}  // namespace v1
}  // namespace tessera
