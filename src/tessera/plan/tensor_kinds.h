#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/inspect.h"
#include "tessera/plan.h"

/// Tensors of repeated blocks, which get one layout.
namespace tessera::plan {

/// Parameters whose names differ in numbers, and whose shapes are equal: "layers.*.mlp.up.weight".
struct TensorKind {
  std::string pattern;  ///< matches these parameters and no others with as many dimensions; `*`: any characters
  std::vector<std::string> names;
  std::vector<int64_t> extents;
  int64_t bytes = 0;  ///< together
};

/// The kinds of the parameters that have at least two dimensions and that no annotation of `fixed` names, the largest
/// first. The numbers of a name that are components of it (between '.' or '/') are replaced by '*', else the first
/// number that is a word of its own ("block_0/up"). If the pattern would match a parameter of another shape, or
/// anything that only begins or ends alike, the parameter is a kind of its own. The name of a parameter is that in the
/// exported model, if the file says it.
std::vector<TensorKind> kinds_of(const std::vector<WeightInfo>& parameters, const Plan& fixed);

/// The layout of a tensor, as annotations are written: "[-, 8{tp}]" has the entries "-" and "8{tp}".
class Entries {
 public:
  /// `layout`: as StateInfo::compute has it; empty, or of another number of dimensions: all dimensions are whole.
  Entries(std::string_view layout, size_t dims);

  /// The dimension that an axis, or a part of it, splits; -1 if none.
  int dim_of(std::string_view axis) const;
  /// The axis splits that dimension, within others, instead of what it splits now; -1: it splits none.
  Entries moved(const std::string& axis, int dim) const;
  /// "[-,{dp,tp}]"
  std::string str() const;

 private:
  struct Entry {
    std::string text;
    std::vector<std::string> axes;
  };
  std::vector<Entry> entries_;
};

}  // namespace tessera::plan
