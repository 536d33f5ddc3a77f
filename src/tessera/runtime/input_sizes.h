#pragma once

#include <string>
#include <vector>

#include "tessera/ir/solve_extents.h"
#include "tessera/ir/tensor.h"

namespace tessera::runtime {

/// A dimension of an input, for messages.
struct InputDim {
  std::string input;
  size_t dim = 0;
};

/// The sizes of symbols by the shapes of arrays that are given for inputs.
class InputSizes {
 public:
  /// `shape`: what the model says; it and `dims` have one rank.
  void add(const std::string& input, const Shape& shape, const Dims& dims);
  /// The sizes, at which all extents are what the arrays have. Throws a user error that names the first input and
  /// dimension that cannot be so, or whose symbols no extent says.
  Symbols solved() const;
  /// Throws for an extent that is an expression and cannot be what its array has, as solved() does. Where symbols stand
  /// alone, or no extent says one, nothing is wrong yet: inputs may go to parts of a model that do not meet.
  void require_expressions() const;

 private:
  std::vector<KnownExtent> extents_;
  std::vector<InputDim> dims_;
};

}  // namespace tessera::runtime
