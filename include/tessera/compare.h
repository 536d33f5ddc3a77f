#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Compares tensors with expected ones.
namespace tessera {
inline namespace v1 {

/// Two tensors agree if |a − b| ≤ absolute + relative·max|expected| for every element that is finite in both, and if
/// NaN and each infinity are where they are expected. A value that is not set defaults to that of the dtype
/// (usual_tolerance).
struct Tolerance {
  std::optional<double> absolute = std::nullopt;
  std::optional<double> relative = std::nullopt;
  /// By tensor name, the type whose tolerance applies instead of that of the tensor's own type, from computed_in().
  std::map<std::string, DType> types = {};
  /// Finite elements where NaN is expected are counted but not compared, unless all elements are such.
  bool spares_nan = false;
};

/// The default tolerance of a dtype.
Tolerance usual_tolerance(DType dtype);

/// The float tensors that depend on values computed in a 16-bit float type narrower than their own, and that type:
/// float16 for an output that a Cast makes float32. If a model runs in parts, only types that the file states are
/// known.
std::map<std::string, DType> computed_in(const Model& model);

struct Difference {
  std::string name;
  bool pass = false;
  double max_abs = 0;   ///< largest |a − b|; infinite if only one is NaN or they are different infinities
  double max_rel = 0;   ///< max_abs / max|expected|
  std::string problem;  ///< why they cannot be compared (a different shape or dtype, or missing); else ""
  int64_t elements = 0;
  int64_t not_finite = 0;       ///< elements that are NaN or infinite in the actual tensor
  int64_t misplaced = 0;        ///< elements that are NaN or infinite in one of the two, and not the same in the other
  std::string first_misplaced;  ///< "[0, 3]: expected inf, got nan"
  /// Set by judge_by_own_loss: the distances of one device and of the mesh from the exact answer, relative to its
  /// largest magnitude.
  double own_loss = 0, loss = 0;
  int64_t spared = 0;  ///< elements that were not compared because NaN was expected (Tolerance::spares_nan)
};

Difference compare(const std::string& name, const Tensor& expected, const Tensor& actual,
                   const Tolerance& tolerance = {});

/// One entry for each tensor of either; a tensor that the other lacks does not pass.
std::vector<Difference> compare(const Tensors& expected, const Tensors& actual, const Tolerance& tolerance = {});

/// Lets a failed tensor pass if its error is no larger than what rounding already costs on one device. `exact` is one
/// device's answer in the model's own type; `expected` is its answer in the narrower type of `actual`. Its
/// distance from `exact` may be three times that of `expected`, but a tenth of the largest magnitude at most. Sets
/// own_loss and loss of the tensors that had failed.
void judge_by_own_loss(std::vector<Difference>& differences, const Tensors& exact, const Tensors& expected,
                       const Tensors& actual);

/// The first tensor, in the running order of `actual`, that both sessions kept in their last run and that differs by
/// more than the tolerance; nullopt if there is none.
std::optional<Difference> first_diverging(Session& expected, Session& actual, const Tolerance& tolerance = {});
/// The same with given expected tensors; others are skipped.
std::optional<Difference> first_diverging(const Tensors& expected, const std::vector<Session::Kept>& actual,
                                          const Tolerance& tolerance = {});

/// Runs PyPI's onnxruntime on these inputs and returns the tensors of these names: outputs of the model, or other
/// results of its nodes. `model` must be as it was loaded. ONNX Runtime runs on the CPU, in a Python process: the
/// Python that the environment variable TESSERA_PYTHON names, else the active virtual environment's, else the first
/// python3 in PATH. Throws a user error with the fix if there is no such Python, if it has no onnxruntime, or if
/// onnxruntime does not run the model.
Tensors run_onnxruntime(const Model& model, const Tensors& inputs, const std::vector<std::string>& names);

/// The label of the model's first Softmax with a row of only -inf in ONNX Runtime; nullopt if there is none, or if ONNX
/// Runtime cannot tell. Such a row, of a query that attends to no key, is NaN in ONNX Runtime and zeros in Tessera
/// (docs/architecture.md).
std::optional<std::string> row_without_keys(const Model& model, const Tensors& inputs);

/// The first tensor, in running order, that `actual` kept in its last run and that differs from ONNX Runtime's by more
/// than the tolerance; nullopt if there is none. Tensors that the model's file does not name are skipped.
std::optional<Difference> first_diverging_from_onnxruntime(const Model& model, const Tensors& inputs, Session& actual,
                                                           const Tolerance& tolerance = {});

}  // namespace v1
}  // namespace tessera
