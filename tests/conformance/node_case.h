#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

/// ONNX's backend tests: folders of one model, its inputs and the outputs that it must give.
namespace tessera::conformance {

/// How closely an output must be met: |a − b| ≤ absolute + relative·|expected|, element by element, as numpy's
/// assert_allclose has it, 16-bit floats to one step of their type at least. Integers and booleans must be equal.
struct ElementTolerance {
  double relative = 1e-3;
  double absolute = 1e-7;
};

struct NodeCase {
  std::string name;
  OnnxModel model;
  std::map<std::string, Tensor> inputs;
  std::map<std::string, Tensor> outputs;
  ElementTolerance tolerance;
};

/// Reads FOLDER/model.onnx, the .pb files of its test_data_set_0, and tolerance.json where there is one. Throws user
/// errors as the importer does.
NodeCase read_case(const std::filesystem::path& folder);

/// Whether the folder's model computes on tensors of numbers and booleans alone: no sequences, optionals or strings,
/// and nothing of training (gradients, optimizers, training modes). A model that cannot be read counts as one that
/// does.
bool is_plain(const std::filesystem::path& folder);

/// The mismatch of `actual`; empty if there is none.
std::string mismatch(const std::string& name, const Tensor& expected, const Tensor& actual,
                     const ElementTolerance& tolerance);

}  // namespace tessera::conformance
