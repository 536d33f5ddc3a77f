#include <limits>

#include "tessera/ops/library/infer.h"
#include "tessera/ops/local/form.h"

/// What chooses elements along a dimension that is split: each rank looks at its part, and the ranks compare.
namespace tessera::ops {
namespace {

// A type that has all elements of another one, and that ranks can reduce.
DType comparable(DType dtype) {
  return is_integer(dtype) && bits_of(dtype) < 32 ? DType::int32 : SplitForm::wide(dtype);
}

// The global index of each of this rank's elements along a dimension, as [n, 1, …]: it broadcasts to the data.
Value* indices_along(SplitForm& form, size_t dim) {
  const Localizer& local = form.local;
  const int factor = local.rule.operands[0][dim].front();
  Shape column(local.node.input(0)->rank() - dim, Expr(1));
  column[0] = local.extents[factor];
  Value* own = form.add(form.range(local.extents[factor]), form.scalar(DType::int64, local.offsets[factor]));
  return form.reshape(own, column);
}

struct Winner {
  Value* indices;  ///< of the elements along the dimension
  Value* index;    ///< of the winner; its dimension has extent 1, or is dropped
};

// The first or last of the greatest or least elements; the first or last NaN beats them all. All ranks take the extreme
// together, then the index among those that have it.
Winner winner_along(SplitForm& form, size_t dim, bool greatest, bool last, bool keep, std::string_view name) {
  Value* x = form.cast(form.local.inputs[0], comparable(form.local.inputs[0]->dtype()));
  Value* extreme = form.reduced(greatest ? "ReduceMax" : "ReduceMin", x, greatest ? Reduction::max : Reduction::min,
                                "extreme", keep);
  if (!keep) extreme = form.emit("Unsqueeze", {extreme, form.axes()});
  Value* wins = form.emit("Equal", {x, extreme});
  if (is_float(x->dtype())) wins = form.emit("Or", {wins, form.unary("IsNaN", x)});
  Value* indices = indices_along(form, dim);
  Value* none = form.graph.constant_int64({last ? -1 : std::numeric_limits<int64_t>::max()}, true);
  Value* index = form.reduced(last ? "ReduceMax" : "ReduceMin", form.where(wins, indices, none),
                              last ? Reduction::max : Reduction::min, name, keep);
  return {indices, index};
}

}  // namespace

std::vector<Value*> localize_arg(Localizer& local) {
  const Node& node = local.node;
  const size_t axis = axis_along(node, 0);
  SplitForm form(local, {axis});
  if (!form.is_split()) return local.same();
  const bool last = node.get_int("select_last_index", 0) != 0, keep = node.get_int("keepdims", 1) != 0;
  return {winner_along(form, axis, node.is("ArgMax"), last, keep, "").index};
}

std::vector<Value*> localize_hardmax(Localizer& local) {
  const size_t axis = axis_along(local.node, -1);
  SplitForm form(local, {axis});
  if (!form.is_split()) return local.same();
  const Winner winner = winner_along(form, axis, true, false, true, "index");
  return {form.cast(form.emit("Equal", {winner.indices, winner.index}), local.outputs[0].dtype)};
}

// Each rank has k candidates, or all its elements if these are fewer; the answer is among them. Candidates lie in the
// order of ranks, so that of equal ones, which a rank orders by index, the lower index comes first.
std::vector<Value*> localize_top_k(Localizer& local) {
  const Node& node = local.node;
  const size_t axis = axis_along(node, -1);
  SplitForm form(local, {axis});
  if (!form.is_split()) return local.same();
  const int factor = form.factors.front();
  // Ranks divide the factor's major piece; each of its elements stands for `unit` of the dimension.
  const std::vector<Localizer::Piece>& pieces = local.pieces[factor];
  Expr unit = 1;
  for (size_t p = 1; p < pieces.size(); ++p) unit = unit * pieces[p].size;
  const TensorType& result = node.outputs[0] ? local.outputs[0] : local.outputs[1];
  const Expr k = (*result.shape)[axis];
  const Expr blocks = min(pieces[0].size, ceildiv(k, unit) * local.ranks[factor]);
  const Attribute along{"axis", static_cast<int64_t>(axis)}, largest{"largest", node.get_int("largest", 1)};
  Value* each = form.shape_operand({local.share({factor}, blocks) * unit});
  const auto own = form.emit_all("", "TopK", {local.inputs[0], each}, {along, largest}, 2);
  Value* indices = form.add(own[1], form.scalar(DType::int64, local.offsets[factor]));
  Value* candidates = local.gather(own[0], {factor}, axis, blocks, unit, "candidates");
  const auto chosen = form.emit_all("", "TopK", {candidates, local.inputs[1]}, {along, largest}, 2);
  std::vector<Value*> results(node.outputs.size(), nullptr);
  if (node.output(0)) results[0] = chosen[0];
  if (node.output(1)) {
    Value* global = local.gather(indices, {factor}, axis, blocks, unit, "indices");
    results[1] = form.emit("GatherElements", {global, chosen[1]}, {along});
  }
  return results;
}

}  // namespace tessera::ops
