#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/compiler/device_faults.h"
#include "tessera/plan.h"

namespace tessera::compiler {

/// The metadata key that holds the mesh of a model's device configuration `name` ("dp=2,tp=4"), since lists of devices
/// do not name axes.
std::string mesh_key(const std::string& name);

/// A model's annotations for one of its device configurations, as a plan over a mesh.
struct DevicePlan {
  /// The model without annotations, with annotated functions inlined, and with an Identity node wherever a node needs
  /// an operand in another layout, or a result at another place, than the tensor has.
  OnnxModel model;
  Mesh mesh;
  std::vector<int64_t> devices;  ///< by rank
  std::vector<AnnotationRequest> annotations;
  std::vector<PlaceRequest> places;
  /// The results of these Identity nodes (in bodies, their labels), and the tensors that they copy.
  std::map<std::string, std::string> copies;
  std::vector<std::string> warnings;  ///< where annotations are not followed exactly
  std::vector<DeviceFault> faults;    ///< nodes whose operands have no common device; operands are sent
};

/// Follows the annotations for configuration `name`. Operands and results get the layouts that their nodes state. A
/// node runs on the devices that hold its operands, even if it has no annotation of its own. Propagation decides all
/// other layouts. Lists of devices that no layout over a mesh expresses are followed as closely as possible, with a
/// warning. `kept`: names of tensors that the caller keeps through rewriting when it compiles the plan. Throws a user
/// error for the first fault (device_faults.h), and if the model has no such configuration.
DevicePlan device_plan(const OnnxModel& model, const std::string& name, const std::set<std::string>& kept = {});

/// The states that a plan's annotations, stored layouts and states name.
std::set<std::string> states_named_in(const Plan& plan, const OnnxModel& model);

}  // namespace tessera::compiler
