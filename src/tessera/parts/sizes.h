#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/source.h"
#include "tessera/ir/solve_extents.h"
#include "tessera/spmd/program.h"

/// The sizes that inputs have, as far as a model must know them before it is compiled.
namespace tessera::parts {

/// The extents of a graph's inputs as declared, with what these tensors have.
std::vector<KnownExtent> known_extents(const Graph& graph, const std::map<std::string, Tensor>& inputs);

/// The sizes of a graph's symbols for inputs of these shapes, as far as these determine them.
Symbols sizes_at(const Graph& graph, const std::map<std::string, Tensor>& inputs);

/// The sizes of `symbols`. Throws a user error for one that `sizes` lacks.
Symbols needed_sizes(const std::set<std::string>& symbols, const Symbols& sizes);

/// What branches and loops of a model assume to be equal of its symbols.
class EqualSizes {
 public:
  EqualSizes() = default;
  explicit EqualSizes(const compiler::Source& model);
  /// The symbols for which `sizes` contradict that, with their sizes.
  Symbols contradicted_by(const Symbols& sizes) const;

 private:
  std::vector<spmd::ExtentEquality> equal_;
};

}  // namespace tessera::parts
