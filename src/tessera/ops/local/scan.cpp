#include "tessera/ops/library/infer.h"
#include "tessera/ops/local/form.h"

namespace tessera::ops {

// CumSum and CumProd: each rank scans its part, and adds (or multiplies by) what the parts before it come to. Example:
// 1 2 3 | 4 5 | 6 over three ranks; the totals 6 9 6 make 0 6 15 before each, and 4 9 becomes 10 15.
std::vector<Value*> localize_cumulative(Localizer& local) {
  const Node& node = local.node;
  const std::vector<int64_t> given = constant_operand(node, 1, "axis");
  SplitForm form(local, {normalize_axis(node, given.front(), node.input(0)->rank())});
  if (!form.is_split()) return local.same();
  const bool sums = node.is("CumSum");
  const int factor = form.factors.front();
  Value* x = form.widened(local.inputs[0]);
  const Attribute backwards{"reverse", node.get_int("reverse", 0)};
  Value* scanned =
      form.emit(node.op_type, {x, local.inputs[1]}, {{"exclusive", node.get_int("exclusive", 0)}, backwards});
  // Totals have a dimension of their own, the first one.
  Value* total = form.emit(sums ? "ReduceSum" : "ReduceProd", {x, form.axes()}, {{"keepdims", int64_t{1}}});
  Value* first = form.graph.constant_int64({0});
  Value* totals = local.gather(form.emit("Unsqueeze", {total, first}), {factor}, 0, local.ranks[factor], 1, "totals");
  Value* before =
      form.emit(node.op_type, {totals, form.graph.constant_int64({0}, true)}, {{"exclusive", int64_t{1}}, backwards});
  Value* own = form.emit("Gather", {before, form.scalar(DType::int64, local.places[factor])}, {{"axis", int64_t{0}}});
  return {form.cast(form.emit(sums ? "Add" : "Mul", {scanned, own}), local.outputs[0].dtype)};
}

}  // namespace tessera::ops
