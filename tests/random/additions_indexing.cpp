#include "random/writer.h"

namespace tessera::random {
namespace {

Value* non_empty(Writer& w, size_t least_rank) {
  return w.pick([&](const Value* v) {
    return v->rank() >= least_rank && v->dtype() != DType::boolean && count_of(w.dims(v)) > 0;
  });
}

bool gather(Writer& w) {
  Value* x = non_empty(w, 1);
  if (!x) return false;
  const int64_t axis = any_axis(w, x), extent = w.dims(x)[static_cast<size_t>(axis)];
  Value* at = w.indices(w.random_shape(0, 2), w.one_in(4) ? -extent : 0, extent - 1);
  return w.add("Gather", {x, at}, {{"axis", axis}}, w.facts(x));
}

bool gather_elements(Writer& w) {
  Value* x = non_empty(w, 1);
  if (!x) return false;
  const int64_t axis = any_axis(w, x), extent = w.dims(x)[static_cast<size_t>(axis)];
  Shape shape = x->shape();
  shape[static_cast<size_t>(axis)] = w.between(1, 4);
  return w.add("GatherElements", {x, w.indices(shape, 0, extent - 1)}, {{"axis", axis}}, w.facts(x));
}

bool gather_rows(Writer& w) {
  Value* x = non_empty(w, 2);
  if (!x) return false;
  const Dims dims = w.dims(x);
  Value* at = w.indices({w.between(1, 4), w.between(1, 2)}, 0, std::min(dims[0], dims[1]) - 1);
  return w.add("GatherND", {x, at}, {}, w.facts(x));
}

bool scatter(Writer& w) {
  Value* x = non_empty(w, 1);
  if (!x || x->dtype() == DType::int8 || x->dtype() == DType::uint8) return false;
  const int64_t axis = any_axis(w, x), extent = w.dims(x)[static_cast<size_t>(axis)];
  Shape shape = x->shape();
  if (!constants_of(shape)) return false;
  shape[static_cast<size_t>(axis)] = w.between(1, 3);
  Value* at = w.indices(shape, 0, extent - 1);
  Value* updates = w.source(shape, x->dtype());
  Facts facts{w.facts(x).bound + 3 * w.facts(updates).bound, w.facts(x).exact};
  return w.add("ScatterElements", {x, at, updates}, {{"axis", axis}, {"reduction", std::string("add")}}, facts);
}

bool one_hot(Writer& w) {
  Value* at = w.indices(w.random_shape(1, 2), 0, 5);
  Value* values = w.graph().add_constant("", Tensor::of<float>(DType::float32, {2}, {0, 3}));
  return w.add("OneHot", {at, w.graph().constant_int64({6}, true), values}, {{"axis", w.between(-1, 1)}}, {3, true});
}

bool running_sum(Writer& w) {
  Value* x = w.pick([&](const Value* v) {
    return v->rank() >= 1 && v->rank() <= 4 &&
           (v->dtype() == DType::float32 || v->dtype() == DType::int32 || v->dtype() == DType::int64);
  });
  if (!x) return false;
  const int64_t axis = any_axis(w, x);
  Facts facts = w.facts(x);
  facts.bound *= static_cast<double>(std::max<int64_t>(1, w.dims(x)[static_cast<size_t>(axis)]));
  return w.add("CumSum", {x, w.graph().constant_int64({axis}, true)},
               {{"exclusive", w.between(0, 1)}, {"reverse", w.between(0, 1)}}, facts);
}

bool largest(Writer& w) {
  Value* x = w.pick([&](const Value* v) {
    return v->rank() >= 1 && w.facts(v).exact && v->dtype() == DType::float32 && count_of(w.dims(v)) > 0;
  });
  if (!x) return false;
  const int64_t axis = any_axis(w, x), extent = w.dims(x)[static_cast<size_t>(axis)];
  if (w.one_in(2))
    return w.add(w.one_of<std::string_view>({"ArgMax", "ArgMin"}), {x},
                 {{"axis", axis}, {"keepdims", w.between(0, 1)}, {"select_last_index", w.between(0, 1)}}, {1000, true});
  Facts facts{std::max(1000.0, w.facts(x).bound), true};
  return w.node("TopK", {x, w.ints({w.between(1, extent)})}, {{"axis", axis}, {"largest", w.between(0, 1)}}, facts,
                2) != nullptr;
}

}  // namespace

std::vector<Addition> indexing_additions() {
  return {gather, gather, gather_elements, gather_rows, scatter, one_hot, running_sum, largest};
}

}  // namespace tessera::random
