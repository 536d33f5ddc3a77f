#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/open_mesh.h"
#include "tessera/ir/glob.h"
#include "tessera/onnx/metadata.h"

namespace tessera {
inline namespace v1 {
namespace {

constexpr std::string_view kPlanKey = "tessera.plan";              // of the model
constexpr std::string_view kAnnotationKey = "tessera.annotation";  // of values, for other readers

}  // namespace

Plan Model::plan() const {
  const auto text = get_metadata(impl().model, kPlanKey);
  return text ? Plan::from_json(*text, "the plan in '" + impl().path.string() + "'") : Plan();
}

void Model::write_annotated(const std::filesystem::path& path, const Plan& plan) const {
  // The plan is compiled for one size of the mesh that has its places, to show whether it can be followed.
  std::vector<compiler::PlaceRequest> places;
  for (const Plan::Annotation& place : plan.places)
    places.push_back(compiler::PlaceRequest::parse(place.text, place.by));
  compile(*this, compiler::close_sizes(plan.mesh, compiler::size_with_places(plan.mesh, places)), plan);
  OnnxModel annotated = impl().model.clone();
  set_metadata(annotated, kPlanKey, plan.to_json());
  for (auto entry = plan.annotations.rbegin(); entry != plan.annotations.rend(); ++entry) {  // the first one wins
    const auto request = compiler::AnnotationRequest::parse(entry->text, entry->by);
    for (const auto& value : annotated.graph->values())
      if (glob_matches(request.pattern, value->name)) set_metadata(*value, kAnnotationKey, request.sharding);
  }
  api::model_of(*this, std::move(annotated)).write(path);
}

}  // namespace v1
}  // namespace tessera
