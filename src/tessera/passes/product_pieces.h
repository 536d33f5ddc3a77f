#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ops/rule.h"
#include "tessera/spmd/program.h"

/// Products in pieces along one of their factors (ops/rule.h): matrix products, batched or not, and einsums.
namespace tessera::passes {

/// Where a factor of a node is.
struct Along {
  std::vector<std::optional<size_t>> operands;  ///< for each operand, its dimension along the factor
  std::optional<size_t> result;                 ///< the result's; nullopt: the factor is summed
};

/// Whether a node multiplies tensors: all its factors pass, or are summed, and at least one is summed over two
/// operands.
bool is_product(const Node& node);
/// Whether a node only moves the elements of its one operand.
bool is_movement(const Node& node);

/// The factor along a dimension of an operand of a product or movement; nullopt if the node cannot be computed in
/// pieces along it.
std::optional<Along> along_operand(const Node& node, size_t operand, size_t dim);
/// The same of a dimension of the result.
std::optional<Along> along_result(const Node& node, size_t dim);

/// Elements of a dimension of a value. Nodes are added before `before`.
Value* sliced(Graph& graph, Value* value, size_t dim, const ops::Interval& elements, const Node* before);

/// The node on the elements of a piece along a factor: of operands along it the slices, or what `given` has for them.
/// If the factor is summed, this is one term of the sum. Nodes are added before `before`.
Value* on_piece(spmd::Program& program, const Node& node, const Along& along, const ops::Interval& elements,
                const std::map<size_t, Value*>& given, const Node* before);

/// `value` takes the place of a node's result: in uses, outputs and placements.
void take_place(spmd::Program& program, Value* old, Value* value);

/// The records of a value's layout changes say "Ring tp" in place of "AllGather tp".
void record_ring(spmd::Program& program, const std::string& value, const std::string& collective,
                 const std::string& axes);

/// "tp", "dp,tp"
std::string axes_text(const std::vector<AxisRef>& axes, const Mesh& mesh);

}  // namespace tessera::passes
