#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/compiler/device_faults.h"
#include "tessera/plan.h"

namespace tessera::compiler {

/// The key of a model's metadata under which the mesh of its device configuration `name` stands ("dp=2,tp=4"): lists of
/// devices do not say what axes are called.
std::string mesh_key(const std::string& name);

/// A model's annotations for one of its device configurations, as a plan over a mesh.
struct DevicePlan {
  /// Without annotations, and with annotated functions in the place of their calls; with an Identity node wherever a
  /// node needs an operand in another layout, or a result at another place, than the tensor has.
  OnnxModel model;
  Mesh mesh;
  std::vector<int64_t> devices;  ///< by rank
  std::vector<AnnotationRequest> annotations;
  std::vector<PlaceRequest> places;
  /// Results of these Identity nodes, in bodies by label, and what they copy.
  std::map<std::string, std::string> copies;
  std::vector<std::string> warnings;  ///< what is done otherwise than the annotations say
  std::vector<DeviceFault> faults;    ///< operands without a common device; one of them is sent
};

/// Follows the annotations for configuration `name`. Operands and results are laid out as their nodes say. A node runs
/// on the devices that hold its operands; one that says nothing, where its operands are. What no node lays out is left
/// to propagation. Lists of devices that no layout over a mesh has are followed as nearly as can be, with a warning.
/// `kept`: tensors that will survive rewriting by name, since the caller keeps them when it compiles the plan. Throws a
/// user error for the first fault (device_faults.h), and if the model has no such configuration.
DevicePlan device_plan(const OnnxModel& model, const std::string& name, const std::set<std::string>& kept = {});

/// The states that a plan's annotations, stored layouts and states name.
std::set<std::string> states_named_in(const Plan& plan, const OnnxModel& model);

}  // namespace tessera::compiler
