#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/onnx/export_record.h"

namespace tessera::train {

/// An initializer that is a copy of a parameter, so that both are one parameter.
struct Tie {
  enum class How { same, transposed, reshaped };
  std::string copy, source;
  How how = How::same;
  Dims dims;  ///< of the copy

  std::string text() const;  ///< "'copy' = 'source'^T"
};

/// Whether `copy` holds the elements of `source` so. False if either has no bytes to compare.
bool holds(const Tensor& copy, const Tensor& source, Tie::How how);

/// The copy that a source with these elements has.
Tensor copied(const Tie& tie, const Tensor& source);

/// The ties of a graph's initializers: those in `asked`, "COPY=SOURCE" or "COPY=SOURCE^T", whose elements may differ,
/// and those that the exporter recorded, if they are equal. "none" in `asked` leaves out the latter. `notes` receives
/// what differs. Throws user errors for names that are not float initializers, and for shapes that do not fit.
std::vector<Tie> ties_of(const Graph& graph, const ExportRecord& record, const std::vector<std::string>& asked,
                         std::vector<std::string>& notes);

/// Makes each copy a result of its own name, computed from its source.
void compute_copies(Graph& graph, const std::vector<Tie>& ties);

/// Pairs of states of at least two dimensions that begin with equal elements, in order or transposed, and that neither
/// a tie nor the exporter explains: they may be one parameter. Reads two elements of most states.
std::vector<Tie> equal_states(const Graph& graph, const ExportRecord& record);

}  // namespace tessera::train
