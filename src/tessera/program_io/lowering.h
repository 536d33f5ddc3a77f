#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/dialect/library.h"
#include "tessera/program_io/expression_nodes.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/write.h"

namespace tessera::program_io {

/// The scalar int64 input through which a loader passes the rank's number, if WriteOptions::rank_id asks for one.
inline constexpr std::string_view kRankInput = "tessera.rank";

/// Writes communication, and Tessera's own operators, in the requested form: as nodes of the dialect, or as calls of
/// functions over Send and Recv, which it collects. Appends to a graph whose shape operands are int64 nodes.
class Lowering {
 public:
  /// `rank`: the model's rank. `hints`: sizes of symbols for the choice of forms.
  Lowering(Graph& graph, ExpressionNodes& expressions, const Mesh& mesh, int64_t rank, const WriteOptions& options,
           const std::map<std::string, int64_t, std::less<>>& hints);

  /// Adds a node of Tessera's domains. Its operands must be in the graph, and a collective must state its members'
  /// extents.
  void add(std::unique_ptr<Node> node);
  /// This rank's index along an axis: an int64 scalar.
  Value* axis_index(const std::string& axis);

  /// Whether the model reads its rank's number, so a model with the number folded in serves only one rank.
  bool uses_rank() const { return rank_ != nullptr; }
  std::vector<Function> take_functions();

 private:
  Value* rank();
  Value* call(const dialect::Spec& spec, std::vector<Value*> operands, const std::string& name);
  Value* bounds(const spmd::CollectiveAttributes& collective, const Expr& extent, const Expr& total);
  void lower_collective(const Node& node);
  void define_local(const Node& node);

  Graph& graph_;
  ExpressionNodes& expressions_;
  const Mesh& mesh_;
  int64_t number_;
  const WriteOptions& options_;
  const std::map<std::string, int64_t, std::less<>>& hints_;
  dialect::Library library_;
  std::vector<Function> local_functions_;
  std::map<std::string, Value*> axis_indices_;
  Value* rank_ = nullptr;
};

/// The body of one of Tessera's own operators in ONNX's operators. Throws a user error that names the node if there is
/// none.
Function local_function(const Node& node);

/// Whether the reader of the program knows only the communication operators among Tessera's own.
bool for_others(const WriteOptions& options);

}  // namespace tessera::program_io
