#include "tessera/ops/gradients.h"
#include "tessera/ops/infer.h"

/// Gradients of gathers and scatters: each is the other's, and repeated indices add up.
namespace tessera::ops {
namespace {

// Indices with the coordinates of their batch put before them, so that none is a batch dimension any more.
Value* with_batch(GradientBuilder& b, Value* indices, size_t batch) {
  if (batch == 0) return indices;
  Shape full = indices->shape();
  std::vector<Value*> parts;
  for (size_t d = 0; d < batch; ++d) {
    Value* range = b.emit("Range", {b.graph.constant_int64({0}, true), b.scalar(DType::int64, full[d]),
                                    b.graph.constant_int64({1}, true)});
    Shape along(full.size(), 1), column = full;
    along[d] = full[d];
    column.back() = 1;
    parts.push_back(b.expand(b.reshape(range, along), column));
  }
  parts.push_back(indices);
  return b.emit("Concat", parts, {{"axis", static_cast<int64_t>(full.size()) - 1, ""}});
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
  const std::string reduction = b.node.get_string("reduction", "none");
  if (reduction != "none" && reduction != "add")
    b.refuse("the gradient of reduction '" + reduction + "' is not defined here; use none or add");
  if (b.wants(0))
    b.give(0, reduction == "add" ? b.g()
                                 : b.emit("ScatterND", {b.g(), b.x(1), b.zeros(b.x(2)->dtype(), b.x(2)->shape())}));
  if (b.wants(2)) b.give(2, b.emit("GatherND", {b.g(), b.x(1)}));
}

void scatter_elements_gradient(GradientBuilder& b) {
  const std::string reduction = b.node.get_string("reduction", "none");
  if (reduction != "none" && reduction != "add")
    b.refuse("the gradient of reduction '" + reduction + "' is not defined here; use none or add");
  const std::vector<Attribute> axis = {{"axis", b.node.get_int("axis", 0), ""}};
  if (b.wants(0))
    b.give(0, reduction == "add"
                  ? b.g()
                  : b.emit("ScatterElements", {b.g(), b.x(1), b.zeros(b.x(2)->dtype(), b.x(2)->shape())}, axis));
  if (b.wants(2)) b.give(2, b.emit("GatherElements", {b.g(), b.x(1)}, axis));
}

void top_k_gradient(GradientBuilder& b) {
  const int64_t axis = b.node.get_int("axis", -1);
  b.give(0, b.emit("ScatterElements", {b.zeros(b.x()->dtype(), b.x()->shape()), b.made(1), b.g()},
                   {{"axis", axis, ""}, {"reduction", std::string("add"), ""}}));
}

}  // namespace tessera::ops
