#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/source.h"
#include "tessera/ir/solve_extents.h"
#include "tessera/spmd/program.h"

/// The sizes of inputs that must be known before a model is compiled.
namespace tessera::parts {

/// The declared extents of a graph's inputs, with their sizes in these tensors.
std::vector<KnownExtent> known_extents(const Graph& graph, const std::map<std::string, Tensor>& inputs);

/// The sizes of a graph's symbols that inputs of these shapes determine.
Symbols sizes_at(const Graph& graph, const std::map<std::string, Tensor>& inputs);

/// The sizes of `symbols`. Throws a user error if `sizes` lacks one.
Symbols needed_sizes(const std::set<std::string>& symbols, const Symbols& sizes);

/// The equalities between a model's symbols that its branches and loops assume.
class EqualSizes {
 public:
  EqualSizes() = default;
  explicit EqualSizes(const compiler::Source& model);
  /// The symbols, with their sizes, for which `sizes` contradicts these.
  Symbols contradicted_by(const Symbols& sizes) const;

 private:
  std::vector<spmd::ExtentEquality> equal_;
};

}  // namespace tessera::parts
