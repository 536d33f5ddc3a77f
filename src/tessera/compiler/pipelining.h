#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/schedule/cell_order.h"
#include "tessera/stages/stages.h"

namespace tessera::compiler {

/// A model's stages along an axis of the mesh, and the order in which ranks compute their cells.
class Pipelining {
 public:
  /// Throws user errors (stage "pipeline") for a mesh without the axis, a schedule that does not exist or does not fit,
  /// and stages that do not fit the model.
  /// `prices`: of the machine by whose seconds stages are dealt out; null: by FLOPs and bytes.
  Pipelining(const OnnxModel& read, const PipelineRequest& request, const Mesh& mesh, const spmd::Hints& sizes,
             const cost::Prices* prices);

  /// The table, and what each stage has.
  std::string text() const;

  const PipelineTable& table() const { return table_; }
  const schedule::CellOrder& cells() const { return *cells_; }
  const std::vector<std::string>& notes() const { return notes_; }  ///< for the user, a line each

  /// Sets stage, micro-batch and pass of the nodes of the rewritten graph, and returns the places of its stages. A node
  /// that makes a tensor of the model as read has those of that tensor's node. A node that rewriting has added has
  /// those of the nodes that use its results, if these agree; else those of the nodes that make its operands. Nodes of
  /// loops and branches have no stage.
  spmd::Places mark(Graph& graph) const;

 private:
  AxisRef axis_;
  PipelineTable table_;
  std::optional<schedule::CellOrder> cells_;
  std::map<std::string, Seat> of_result_;  // of every result of the read model
  stages::Stages stages_;
  std::vector<std::string> notes_;
};

}  // namespace tessera::compiler
