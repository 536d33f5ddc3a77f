#include "random/writer.h"

namespace tessera::random {
namespace {

using Ints = std::vector<int64_t>;

bool is_contractible(Writer& w, const Value* v) {
  return is_float(v->dtype()) && v->rank() >= 2 && v->rank() <= 4 && w.facts(v).bound <= 0x1p16;
}

double depth(Writer& w, const Value* x, size_t dim) {
  return static_cast<double>(std::max<int64_t>(1, w.dims(x)[dim]));
}

bool matmul(Writer& w) {
  Value* a = w.pick([&](const Value* v) { return is_contractible(w, v); });
  if (!a) return false;
  Value* b = w.pick([&](const Value* v) {
    return v->dtype() == a->dtype() && v->rank() >= 2 && v->rank() <= a->rank() && v != a &&
           v->shape()[v->rank() - 2] == a->shape().back();
  });
  if (!b || w.one_in(2)) {
    Shape shape = a->shape();
    shape.erase(shape.begin(), shape.end() - (w.one_in(2) ? 2 : static_cast<long>(shape.size())));
    shape[shape.size() - 2] = a->shape().back();
    shape.back() = w.one_of<int64_t>({1, 2, 3, 4, 6, 8, 12});
    b = w.source(shape, a->dtype(), 2);
  }
  Facts x = w.facts(a), y = w.facts(b);
  return w.add("MatMul", {a, b}, {}, {depth(w, a, a->rank() - 1) * x.bound * y.bound, x.exact && y.exact});
}

bool linear(Writer& w) {
  Value* a = w.pick([&](const Value* v) { return is_contractible(w, v); });
  if (!a) return false;
  const int64_t columns = w.one_of<int64_t>({2, 4, 6, 8, 12});
  Value* weight = w.source({a->shape().back(), columns}, a->dtype(), 1);
  double bound = depth(w, a, a->rank() - 1) * w.facts(a).bound;
  Node* product = w.node("MatMul", {a, weight}, {}, {bound, w.facts(a).exact});
  return product &&
         w.add("Add", {product->outputs[0], w.source({columns}, a->dtype(), 4)}, {}, {bound + 4, w.facts(a).exact});
}

bool gemm(Writer& w) {
  Value* a = w.pick([&](const Value* v) { return is_contractible(w, v) && v->rank() == 2; });
  if (!a) return false;
  const int64_t turn_a = w.between(0, 1), turn_b = w.between(0, 1);
  const auto inner = static_cast<size_t>(turn_a ? 0 : 1);
  const int64_t columns = w.one_of<int64_t>({1, 3, 4, 6, 8});
  Value* b = w.source(turn_b ? Shape{columns, a->shape()[inner]} : Shape{a->shape()[inner], columns}, a->dtype(), 2);
  Value* c = w.one_in(2)
                 ? nullptr
                 : w.source(w.one_in(2) ? Shape{columns} : Shape{a->shape()[1 - inner], columns}, a->dtype(), 4);
  const float alpha = w.one_in(3) ? 2.f : 1.f;
  Facts facts{depth(w, a, inner) * w.facts(a).bound * 2 * alpha + 4, w.facts(a).exact};
  return w.add("Gemm", {a, b, c}, {{"transA", turn_a}, {"transB", turn_b}, {"alpha", alpha}}, facts);
}

bool einsum(Writer& w) {
  Value* a =
      w.pick([&](const Value* v) { return is_contractible(w, v) && v->rank() == 3 && v->dtype() == DType::float32; });
  if (!a) return false;
  struct Form {
    std::string equation;
    Ints dims;  // of b: which of a's, or -1 for a fresh one
    Ints summed;
  };
  const Form form = w.one_of<Form>({{"abc,cd->abd", {2, -1}, {2}},
                                    {"abc,abd->acd", {0, 1, -1}, {1}},
                                    {"abc,dcb->ad", {-1, 2, 1}, {1, 2}},
                                    {"abc,bd->adc", {1, -1}, {1}}});
  Shape shape;
  for (int64_t d : form.dims) shape.push_back(d < 0 ? Expr(w.between(1, 6)) : a->shape()[static_cast<size_t>(d)]);
  Value* b = w.source(shape, a->dtype(), 2);
  double bound = 2 * w.facts(a).bound;
  for (int64_t d : form.summed) bound *= depth(w, a, static_cast<size_t>(d));
  return w.add("Einsum", {a, b}, {{"equation", form.equation}}, {bound, w.facts(a).exact});
}

bool reduce(Writer& w) {
  Value* x = w.pick([&](const Value* v) {
    return v->rank() >= 1 && (is_float(v->dtype()) || v->dtype() == DType::int32 || v->dtype() == DType::int64);
  });
  if (!x) return false;
  const Dims dims = w.dims(x);
  Ints axes;
  for (size_t d = 0; d < x->rank(); ++d)
    if (w.one_in(2)) axes.push_back(static_cast<int64_t>(d) - (w.one_in(3) ? static_cast<int64_t>(x->rank()) : 0));
  double count = static_cast<double>(std::max<int64_t>(1, count_of(dims)));
  Facts facts = w.facts(x);
  auto type = w.one_of<std::string>(
      {"ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceSumSquare"});
  // A minimum of nothing is an infinity, which no integer type has.
  if ((type == "ReduceMax" || type == "ReduceMin" || type == "ReduceMean") && count_of(dims) == 0) return false;
  if (type == "ReduceMean") {
    if (x->dtype() != DType::float32 && x->dtype() != DType::float64) return false;
    facts.exact = false;
  } else if (type == "ReduceSumSquare") {
    facts.bound *= facts.bound * count;
  } else if (type == "ReduceSum" || type == "ReduceL1") {
    facts.bound *= count;
  }
  return w.add(type, {x, axes.empty() ? nullptr : w.ints(axes)}, {{"keepdims", w.between(0, 1)}}, facts);
}

// What a window has beyond the edge, times an infinity, is NaN in some of oneDNN's forms and nothing in others.
bool convolution(Writer& w) {
  if (w.has_specials()) return false;
  Value* x = w.pick([&](const Value* v) {
    return v->dtype() == DType::float32 && (v->rank() == 3 || v->rank() == 4) && v->shape()[1].is_constant() &&
           w.facts(v).bound <= 0x1p14 && count_of(w.dims(v)) > 0;
  });
  if (!x) x = w.source({w.between(1, 3), 2 * w.between(1, 3), w.between(3, 6), w.between(3, 6)}, DType::float32);
  const int64_t channels = *x->shape()[1].constant();
  const int64_t groups = channels % 2 == 0 && w.one_in(3) ? 2 : 1;
  const size_t space = x->rank() - 2;
  Shape shape = {groups * w.between(1, 4), channels / groups};
  Ints pads(2 * space), strides(space), dilations(space);
  for (size_t d = 0; d < space; ++d) {
    shape.push_back(w.between(1, 3));
    pads[d] = w.between(0, 1);
    pads[d + space] = w.between(0, 1);
    strides[d] = w.between(1, 2);
    dilations[d] = w.one_in(5) ? 2 : 1;
  }
  Value* kernel = w.source(shape, DType::float32, 2);
  Value* bias = w.one_in(2) ? w.source({shape[0]}, DType::float32, 4) : nullptr;
  Facts facts{2 * static_cast<double>(channels) * 9 * w.facts(x).bound + 4, w.facts(x).exact};
  return w.add("Conv", {x, kernel, bias},
               {{"pads", pads}, {"strides", strides}, {"dilations", dilations}, {"group", groups}}, facts);
}

bool pool(Writer& w) {
  Value* x =
      w.pick([&](const Value* v) { return v->dtype() == DType::float32 && v->rank() == 4 && count_of(w.dims(v)) > 0; });
  if (!x) return false;
  Facts facts = w.facts(x);
  auto type = w.one_of<std::string_view>({"MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"});
  if (type == "AveragePool" || type == "GlobalAveragePool") facts.exact = false;
  if (type.starts_with("Global")) return w.add(type, {x}, {}, facts);
  return w.add(
      type, {x},
      {{"kernel_shape", Ints{w.between(1, 2), w.between(1, 2)}}, {"strides", Ints{w.between(1, 2), w.between(1, 2)}}},
      facts);
}

}  // namespace

std::vector<Addition> contraction_additions() {
  return {matmul, matmul, matmul, linear, linear, gemm, einsum, reduce, reduce, reduce, convolution, pool};
}

}  // namespace tessera::random
