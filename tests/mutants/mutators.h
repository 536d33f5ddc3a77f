#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mutants/edited_model.h"

namespace tessera::mutants {

/// One way to edit a model. An edit that finds nothing to do, or does not fit, returns "" (and may leave the model in
/// any state); else it returns a description. One kind is set.
struct Mutator {
  std::string_view name;
  /// Edits a node for which `fits` holds; the same in all models of a program that have it, or in one.
  bool (*fits)(const Site& site) = nullptr;
  std::string (*edit)(const Site& site, Random& random) = nullptr;
  /// Edits an initializer.
  bool (*fits_tensor)(const onnx::TensorProto& tensor) = nullptr;
  std::string (*edit_tensor)(EditedModel& model, onnx::TensorProto& tensor, Random& random) = nullptr;
  /// Edits anything.
  std::string (*edit_model)(EditedModel& model, Random& random) = nullptr;
};

/// Edits that may make a program wrong, or that of another model.
const std::vector<Mutator>& mutators();
/// Edits of good tools: programs stay right, and must be accepted.
const std::vector<Mutator>& harmless();

std::vector<Mutator> communication_mutators();
std::vector<Mutator> node_mutators();
std::vector<Mutator> number_mutators();
std::vector<Mutator> note_mutators();

/// An extent that no rank has: over axes or symbols that nothing has, or no number at all.
std::string odd_extent(Random& random);

/// Removes the model's statements about its values: all types but those of inputs and outputs, and with them the
/// placements.
void strip_notes(EditedModel& model);

}  // namespace tessera::mutants
