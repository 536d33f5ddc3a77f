#include "tessera/compiler/plan_metadata.h"

#include "tessera/compiler/open_mesh.h"
#include "tessera/compiler/requests.h"
#include "tessera/ir/glob.h"
#include "tessera/onnx/metadata.h"

namespace tessera::compiler {
namespace {

constexpr std::string_view kPlanKey = "tessera.plan";              // of the model
constexpr std::string_view kAnnotationKey = "tessera.annotation";  // of values, for other readers

}  // namespace

Plan noted_plan(const OnnxModel& model, const std::filesystem::path& path) {
  const auto text = get_metadata(model, kPlanKey);
  return text ? Plan::from_json(*text, "the plan in '" + path.string() + "'") : Plan();
}

void note_plan(OnnxModel& model, const Plan& plan) {
  set_metadata(model, kPlanKey, plan.to_json());
  for (auto entry = plan.annotations.rbegin(); entry != plan.annotations.rend(); ++entry) {  // the first one wins
    const auto request = AnnotationRequest::parse(entry->text, entry->by);
    for (const auto& value : model.graph->values())
      if (glob_matches(request.pattern, value->name)) set_metadata(*value, kAnnotationKey, request.sharding);
  }
}

Mesh smallest_mesh(const Plan& plan) {
  std::vector<PlaceRequest> places;
  for (const Plan::Annotation& place : plan.places) places.push_back(PlaceRequest::parse(place.text, place.by));
  return close_sizes(plan.mesh, size_with_places(plan.mesh, places));
}

}  // namespace tessera::compiler
