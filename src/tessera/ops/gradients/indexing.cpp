#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"

/// Gradients of gathers and scatters: each is the other's, and repeated indices add up.
namespace tessera::ops {
namespace {

// Indices with the coordinates of their batch put before them, so that none is a batch dimension any more.
Value* with_batch(GradientBuilder& b, Value* indices, size_t batch) {
  if (batch == 0) return indices;
  Shape full = indices->shape();
  std::vector<Value*> parts;
  for (size_t d = 0; d < batch; ++d) {
    Shape along(full.size(), 1), column = full;
    along[d] = full[d];
    column.back() = 1;
    parts.push_back(b.expand(b.reshape(b.range(full[d]), along), column));
  }
  parts.push_back(indices);
  return b.emit("Concat", parts, {{"axis", static_cast<int64_t>(full.size()) - 1, ""}});
}

// A scatter and the gather of the same indices.
struct Places {
  GradientBuilder& b;
  std::string_view scatter_type, gather_type;
  std::vector<Attribute> attributes;

  Value* scatter(Value* data, Value* updates, const std::string& reduction) const {
    std::vector<Attribute> own = attributes;
    own.push_back({"reduction", reduction, ""});
    return b.emit(scatter_type, {data, b.x(1), updates}, own);
  }
  Value* gather(Value* data) const { return b.emit(gather_type, {data, b.x(1)}, attributes); }
  Value* as_float(Value* condition) const { return b.cast(condition, b.x()->dtype()); }
};

// Elements that equal the result share its gradient evenly.
void scattered_extremum(GradientBuilder& b, const Places& at) {
  Value* of_data = at.as_float(b.emit("Equal", {b.x(0), b.y()}));
  Value* of_updates = at.as_float(b.emit("Equal", {b.x(2), at.gather(b.y())}));
  Value* share = b.div(b.g(), at.scatter(of_data, of_updates, "add"));
  if (b.wants(0)) b.give(0, b.mul(share, of_data));
  if (b.wants(2)) b.give(2, b.mul(at.gather(share), of_updates));
}

// The product of all other factors, also where one of them is 0.
void scattered_product(GradientBuilder& b, const Places& at) {
  const auto is_zero = [&](Value* x) { return b.emit("Equal", {x, b.number(x, 0)}); };
  const auto filled = [&](Value* x) { return b.where(is_zero(x), b.number(x, 1), x); };
  Value *data = b.x(0), *updates = b.x(2);
  Value* product = at.scatter(filled(data), filled(updates), "mul");
  Value* zeros = at.scatter(at.as_float(is_zero(data)), at.as_float(is_zero(updates)), "add");
  const auto others = [&](Value* factor, Value* all, Value* zeros_there) {
    Value* own = at.as_float(is_zero(factor));
    return b.where(b.emit("Equal", {zeros_there, own}), b.div(all, filled(factor)), 0.0);
  };
  if (b.wants(0)) b.give(0, b.mul(b.g(), others(data, product, zeros)));
  if (b.wants(2)) b.give(2, b.mul(at.gather(b.g()), others(updates, at.gather(product), at.gather(zeros))));
}

void scatter_gradient(GradientBuilder& b, std::string_view scatter, std::string_view gather,
                      std::vector<Attribute> attributes) {
  const Places at{b, scatter, gather, std::move(attributes)};
  const std::string reduction = b.node.get_string("reduction", "none");
  if (reduction == "mul") return scattered_product(b, at);
  if (reduction == "max" || reduction == "min") return scattered_extremum(b, at);
  if (b.wants(0))
    b.give(0, reduction == "add" ? b.g() : at.scatter(b.g(), b.zeros(b.x(2)->dtype(), b.x(2)->shape()), "none"));
  if (b.wants(2)) b.give(2, at.gather(b.g()));
}

}  // namespace

void gather_gradient(GradientBuilder& b) {
  const auto axis = static_cast<int64_t>(normalize_axis(b.node, b.node.get_int("axis", 0), b.x()->rank()));
  Value *g = b.g(), *indices = b.x(1);
  if (b.wants(0)) b.give(0, b.scatter_along(g, indices, axis, b.x()->shape()));
}

void gather_elements_gradient(GradientBuilder& b) {
  const int64_t axis = b.node.get_int("axis", 0);
  b.give(0, b.emit("ScatterElements", {b.zeros(b.x()->dtype(), b.x()->shape()), b.x(1), b.g()},
                   {{"axis", axis, ""}, {"reduction", std::string("add"), ""}}));
}

void gather_nd_gradient(GradientBuilder& b) {
  Value* indices = with_batch(b, b.x(1), static_cast<size_t>(b.node.get_int("batch_dims", 0)));
  b.give(0, b.emit("ScatterND", {b.zeros(b.x()->dtype(), b.x()->shape()), indices, b.g()},
                   {{"reduction", std::string("add"), ""}}));
}

void scatter_nd_gradient(GradientBuilder& b) {
  scatter_gradient(b, "ScatterND", "GatherND", {});
}

void scatter_elements_gradient(GradientBuilder& b) {
  scatter_gradient(b, "ScatterElements", "GatherElements", {{"axis", b.node.get_int("axis", 0), ""}});
}

void top_k_gradient(GradientBuilder& b) {
  const int64_t axis = b.node.get_int("axis", -1);
  b.give(0, b.emit("ScatterElements", {b.zeros(b.x()->dtype(), b.x()->shape()), b.made(1), b.g()},
                   {{"axis", axis, ""}, {"reduction", std::string("add"), ""}}));
}

}  // namespace tessera::ops
