#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// The role of an initializer in the model that was exported.
enum class Role {
  unknown,    ///< the file does not say
  parameter,  ///< a parameter
  copy,       ///< the elements of one or more parameters, in another order or shape
  buffer,     ///< stored with the model, but no parameter
  computed,   ///< the exporter computed it, from parameters among others
  constant,   ///< the exporter computed it, from no parameter
};

struct Provenance {
  Role role = Role::unknown;
  /// Names in the model that was exported: of a parameter or buffer, those that it stands for (several, where the
  /// model ties parameters or the exporter merged equal ones); else the parameters that it was made of.
  std::vector<std::string> sources;
};

/// What PyTorch's exporter wrote about the initializers of a graph into the file's metadata: their kinds, what folding
/// made them of, and the names of all parameters of the model.
///
/// A folded initializer is a copy where its own name and those that it was folded from show that elements were moved
/// only: `val_40` from `q_proj.weight` is a transposition within a decomposition; `exp` from `logit_scale` is computed.
class ExportRecord {
 public:
  explicit ExportRecord(const Graph& graph);

  /// Of an initializer of the graph; unknown, without names, where the file says nothing.
  const Provenance& of(const Value& value) const;
  /// Its name in the file, and those of its sources.
  std::vector<std::string_view> names_of(const Value& value) const;
  bool matches(std::string_view pattern, const Value& value) const;
  /// The exported model's parameters that no initializer of the graph is, nor a copy of: it has them under another
  /// name, uses them only in what was computed, or not at all.
  const std::vector<std::string>& missing() const { return missing_; }
  /// Those of them that nodes of the graph once took, so that the exporter merged them with others.
  const std::vector<std::string>& merged() const { return merged_; }
  /// Whether the file has such a record.
  bool empty() const { return known_.empty(); }

 private:
  std::map<const Value*, Provenance> known_;
  std::vector<std::string> missing_, merged_;
};

/// Gives a graph that is made from another what the file says of that one's parameters as a whole; what it says of each
/// initializer goes with the initializer.
void copy_export_record(Graph& to, const Graph& from);

}  // namespace tessera
