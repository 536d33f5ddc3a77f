#pragma once

#include <map>
#include <string>
#include <vector>

#include "property/subject.h"

/// A subject of the property tests as a loss and its gradients.
namespace tessera::train {

/// What a subject's float operands hold.
enum class Elements {
  given,   ///< as the subject says, in integers wherever it does; NaN, infinities and huge numbers become small ones
  smooth,  ///< moved off integers and off each other, so that no function is at a kink
};

/// A subject all of whose float sources that operators may train are inputs of one type, and the loss
/// Σ result · weight over those of its float results that were asked for.
struct Differentiated {
  property::Subject forward;   ///< one output: the loss, a float64
  property::Subject backward;  ///< the loss, then the gradients that exist, named "grad.SOURCE"
  std::vector<std::string> sources;
};

/// `results` are indices of the subject's outputs. Loss weights are small nonzero integers. Throws as train::gradients
/// does.
Differentiated differentiate(const property::Subject& subject, const std::vector<size_t>& results, DType type,
                             Elements elements);

/// Outputs of a subject whose elements are floats.
std::vector<size_t> float_outputs(const property::Subject& subject);

std::vector<double> doubles_of(const Tensor& tensor);
Tensor tensor_of(DType type, const Dims& dims, const std::vector<double>& values);

/// The outputs of a subject on one rank.
runtime::Executor::Tensors run_on_one(const property::Subject& subject);

/// For each element x of each source the central difference quotients Q of the loss, (4·Q(h) − Q(2h)) / 3, whose error
/// is in the order of h⁴.
std::map<std::string, std::vector<double>> difference_quotients(const Differentiated& of, double h);

}  // namespace tessera::train
