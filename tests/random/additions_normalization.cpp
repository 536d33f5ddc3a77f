#include "random/writer.h"

// Normalizations amplify errors of their operands, so they take only exact operands of moderate size.
namespace tessera::random {
namespace {

Value* calm(Writer& w, size_t least_rank, size_t most_rank) {
  return w.pick([&](const Value* v) {
    return v->dtype() == DType::float32 && v->rank() >= least_rank && v->rank() <= most_rank && w.facts(v).exact &&
           w.facts(v).bound <= 64;
  });
}

bool softmax(Writer& w) {
  Value* x = calm(w, 1, 5);
  if (!x) return false;
  auto rank = static_cast<int64_t>(x->rank());
  auto type = w.one_of<std::string_view>({"Softmax", "Softmax", "LogSoftmax"});
  return w.add(type, {x}, {{"axis", w.between(-rank, rank - 1)}}, {type == "Softmax" ? 1 : 150.0, false});
}

bool layer_norm(Writer& w) {
  Value* x = calm(w, 2, 4);
  if (!x || !x->shape().back().is_constant()) return false;
  const Attribute axis{"axis", w.one_in(3) ? int64_t{-2} : int64_t{-1}};
  Value* scale = w.source({x->shape().back()}, DType::float32, 2);
  if (w.one_in(2)) return w.add("RMSNormalization", {x, scale}, {axis}, {20, false});
  Value* bias = w.one_in(2) ? w.source({x->shape().back()}, DType::float32, 2) : nullptr;
  return w.add("LayerNormalization", {x, scale, bias}, {axis}, {20, false});
}

bool channel_norm(Writer& w) {
  Value* x = calm(w, 3, 4);
  if (!x || !x->shape()[1].is_constant() || count_of(w.dims(x)) == 0) return false;
  const int64_t channels = *x->shape()[1].constant();
  Value* scale = w.source({channels}, DType::float32, 2);
  Value* bias = w.source({channels}, DType::float32, 2);
  if (w.one_in(2)) return w.add("InstanceNormalization", {x, scale, bias}, {}, {30, false});
  return w.add("GroupNormalization", {x, scale, bias}, {{"num_groups", channels % 2 == 0 ? int64_t{2} : int64_t{1}}},
               {40, false});
}

bool attention(Writer& w) {
  Value* q = calm(w, 4, 4);
  if (!q || w.facts(q).bound > 8 || !q->shape()[1].is_constant() || !q->shape()[3].is_constant() ||
      count_of(w.dims(q)) == 0)
    q = w.source({w.between(1, 3), w.one_of<int64_t>({2, 3, 4, 6}), w.between(1, 5), w.between(1, 4)}, DType::float32,
                 2);
  const int64_t heads = *q->shape()[1].constant();
  const int64_t groups = heads % 2 == 0 && w.one_in(2) ? heads / 2 : w.one_in(4) ? 1 : heads;
  const bool is_causal = w.one_in(2);
  Expr length = is_causal ? q->shape()[2] : Expr(w.between(1, 6));
  Value* k = w.source({q->shape()[0], groups, length, q->shape()[3]}, DType::float32, 1);
  Value* v = w.source({q->shape()[0], groups, length, w.between(1, 4)}, DType::float32, 4);
  return w.add("Attention", {q, k, v}, {{"is_causal", int64_t{is_causal}}}, {4, false});
}

}  // namespace

std::vector<Addition> normalization_additions() {
  return {softmax, softmax, layer_norm, layer_norm, channel_norm, attention};
}

}  // namespace tessera::random
