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

/// Finds the sizes of symbols from the shapes of the arrays that are given for inputs.
class InputSizes {
 public:
  /// `shape`: the model's, of the same rank as `dims`.
  void add(const std::string& input, const Shape& shape, const Dims& dims);
  /// The sizes at which all extents are those of the arrays. Throws a user error that names the first input and
  /// dimension for which this is impossible, or whose symbols no extent determines.
  Symbols solved() const;
  /// Like solved(), but throws only for extents that are expressions and cannot be those of their arrays. Conflicts of
  /// single symbols, and symbols without a size, are accepted: the inputs may go to separate parts of a model.
  void require_expressions() const;

 private:
  std::vector<KnownExtent> extents_;
  std::vector<InputDim> dims_;
};

}  // namespace tessera::runtime
