
#include "tessera/onnx/device_annotations.h"

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/check.h"
#include "tessera/compiler/device_plan.h"
#include "tessera/compiler/inner_tensors.h"
#include "tessera/compiler/operator_faults.h"
#include "tessera/compiler/write_devices.h"
#include "tessera/onnx/export.h"

namespace tessera {
inline namespace v1 {
namespace {

// Moves the model out of `followed`.
ConfiguredModel configured_by(const Model& model, compiler::DevicePlan& followed) {
  ConfiguredModel configured;
  configured.plan.mesh = followed.mesh.str();
  configured.plan.presets = compiler::kNoPreset;
  for (const compiler::AnnotationRequest& request : followed.annotations)
    configured.plan.annotations.push_back({request.pattern + "=" + request.sharding, request.by, request.optional});
  for (const compiler::PlaceRequest& request : followed.places)
    configured.plan.places.push_back({request.pattern + "=" + request.place, request.by});
  configured.devices = followed.devices;
  configured.warnings = followed.warnings;
  configured.model = api::model_of(model, std::move(followed.model));
  return configured;
}

// The names of all results of nodes.
std::vector<std::string> results_of(const OnnxModel& model) {
  std::vector<std::string> names;
  for (const Value* value : model.graph->values_of(ValueKind::result)) names.push_back(value->name);
  return names;
}

}  // namespace

std::vector<std::string> Model::configurations() const {
  std::vector<std::string> names;
  for (const DeviceConfiguration& configuration : device_configurations(impl().model))
    names.push_back(configuration.name);
  return names;
}

ConfiguredModel Model::configured(const std::string& configuration) const {
  return configured(configuration, {});
}

ConfiguredModel Model::configured(const std::string& configuration, const Plan& before) const {
  compiler::DevicePlan followed =
      compiler::device_plan(impl().model, configuration, compiler::states_named_in(before, impl().model));
  return configured_by(*this, followed);
}

Model Model::annotated(const Mesh& mesh, const Plan& plan, const std::string& configuration) const {
  if (configuration.empty()) fail("devices", "a device configuration needs a name; give one");
  const Program program = compile(*this, mesh, plan);
  OnnxModel model = impl().model.clone();
  compiler::write_configuration(model, *program.impl().compiled, configuration);
  return api::model_of(*this, std::move(model));
}

Model Model::completed(const std::string& configuration) const {
  compiler::refuse_faults(impl().model, configuration);
  OnnxModel labelled = impl().model.clone();
  CompileOptions options;
  options.keep = compiler::label_inner_tensors(labelled);
  const std::vector<std::string> results = results_of(labelled);  // kept, so that nothing is merged
  compiler::DevicePlan followed = compiler::device_plan(labelled, configuration, {results.begin(), results.end()});
  for (std::string& name : results_of(followed.model)) options.keep.push_back(std::move(name));
  const ConfiguredModel configured = configured_by(*this, followed);
  const Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan, options);
  OnnxModel model = impl().model.clone();
  compiler::write_devices(model, *program.impl().compiled, configured.devices, configuration, followed.copies);
  return api::model_of(*this, std::move(model));
}

void Model::write(const std::filesystem::path& path) const {
  for (const auto& value : impl().model.graph->values())
    if (value->changing)
      fail("write", "the state '{}' changes, which a model file cannot express; list it in the plan (Plan::states)",
           value->name);
  constexpr size_t kInline = 1024;
  ExportOptions options;
  options.external_threshold = kInline;
  export_model(impl().model, path, options);
}

std::vector<CheckFinding> check_annotations(const Model& model, const std::string& configuration) {
  std::vector<CheckFinding> findings;
  auto add = [&](const std::string& rule, const std::vector<compiler::DeviceFault>& faults) {
    for (const compiler::DeviceFault& fault : faults) {
      findings.push_back({rule, fault.message, {}});
      if (!fault.node.empty()) findings.back().places.push_back({0, fault.node});
    }
  };
  add("device", compiler::device_faults(model.impl().model, configuration));
  if (!findings.empty()) return findings;
  for (const std::string& name : model.configurations()) {
    if (!configuration.empty() && name != configuration) continue;
    compiler::DevicePlan followed = compiler::device_plan(model.impl().model, name);
    const ConfiguredModel configured = configured_by(model, followed);
    const Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
    add("operator", compiler::operator_faults(*program.impl().compiled, configured.model.impl().model, followed, name));
  }
  return findings;
}

void refuse_wrong_annotations(const Model& model) {
  compiler::refuse_faults(model.impl().model, "");
}

}  // namespace v1
}  // namespace tessera
