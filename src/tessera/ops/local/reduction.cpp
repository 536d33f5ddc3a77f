#include <limits>
#include <numeric>

#include "tessera/ops/library/codes.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/local/form.h"

namespace tessera::ops {
namespace {

std::vector<size_t> combined_dims(const Node& node) {
  const size_t rank = node.input(0)->rank();
  auto axes = axes_operand(node, 1, rank);
  if (axes && !axes->empty()) return *axes;
  std::vector<size_t> all;
  if (node.get_int("noop_with_empty_axes", 0) == 0)
    for (size_t d = 0; d < rank; ++d) all.push_back(d);
  return all;
}

bool keeps_dims(const Node& node) {
  return node.get_int("keepdims", 1) != 0;
}

// Roots and logarithms of integers' sums are taken in double.
Value* as_reals(SplitForm& form) {
  Value* x = form.local.inputs[0];
  return is_integer(x->dtype()) ? form.cast(x, DType::float64) : form.widened(x);
}

}  // namespace

// ReduceL2 and ReduceLogSum: the root, or the logarithm, of a sum over all ranks.
std::vector<Value*> localize_root_or_log(Localizer& local) {
  SplitForm form(local, combined_dims(local.node));
  if (!form.is_split()) return local.same();
  const bool root = local.node.is("ReduceL2");
  Value* sum = form.reduced(root ? "ReduceSumSquare" : "ReduceSum", as_reals(form), Reduction::sum, "sum",
                            keeps_dims(local.node));
  return {form.cast(form.unary(root ? "Sqrt" : "Log", sum), local.outputs[0].dtype)};
}

// log Σ exp(x) = m + log Σ exp(x - m), where m is the greatest x of all ranks (0 if that is infinite or NaN).
std::vector<Value*> localize_log_sum_exp(Localizer& local) {
  SplitForm form(local, combined_dims(local.node));
  if (!form.is_split()) return local.same();
  const bool keep = keeps_dims(local.node);
  Value* x = form.widened(local.inputs[0]);
  const double most = x->dtype() == DType::float64 ? std::numeric_limits<double>::max()
                                                   : static_cast<double>(std::numeric_limits<float>::max());
  Value* greatest = form.reduced("ReduceMax", x, Reduction::max, "max", keep);
  Value* finite = form.emit("LessOrEqual", {form.unary("Abs", greatest), form.number(greatest, most)});
  Value* shift = form.where(finite, greatest, 0.0);
  Value* beside = keep ? shift : form.emit("Unsqueeze", {shift, form.axes()});
  Value* sum = form.reduced("ReduceSum", form.unary("Exp", form.sub(x, beside)), Reduction::sum, "sum", keep);
  return {form.cast(form.add(form.unary("Log", sum), shift), local.outputs[0].dtype)};
}

// DynamicQuantizeLinear: codes by the range of all ranks' elements.
std::vector<Value*> localize_dynamic_quantization(Localizer& local) {
  std::vector<size_t> all(local.node.input(0)->rank());
  std::iota(all.begin(), all.end(), size_t{0});
  SplitForm form(local, std::move(all));
  if (!form.is_split()) return local.same();
  Value* x = local.inputs[0];
  const auto of_all = [&](std::string_view type, Reduction reduction, std::string_view name) {
    return form.reshape(form.reduced(type, x, reduction, name), {});
  };
  Value* greatest = of_all("ReduceMax", Reduction::max, "max");
  Value* smallest = of_all("ReduceMin", Reduction::min, "min");
  std::vector<Value*> results = codes_by_range(form, x, greatest, smallest);
  results.resize(local.node.outputs.size());
  for (size_t r = 0; r < results.size(); ++r)
    if (!local.node.outputs[r]) results[r] = nullptr;
  return results;
}

// ReduceProd: the ranks' products are concatenated in the order of their parts, and each rank multiplies them.
std::vector<Value*> localize_product(Localizer& local) {
  SplitForm form(local, combined_dims(local.node));
  if (!form.is_split()) return local.same();
  int64_t ranks = 1;
  for (int factor : form.factors) ranks *= local.ranks[factor];
  const auto product = [&](Value* value, Value* axes, bool keep) {
    return form.emit("ReduceProd", {value, axes}, {{"keepdims", int64_t{keep}}});
  };
  Value* first = form.graph.constant_int64({0});
  Value* own =
      form.emit("Unsqueeze", {product(form.widened(local.inputs[0]), form.axes(), keeps_dims(local.node)), first});
  Value* all = local.gather(own, form.factors, 0, ranks, 1, "products");
  return {form.cast(product(all, first, false), local.outputs[0].dtype)};
}

}  // namespace tessera::ops
