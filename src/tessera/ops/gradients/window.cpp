#include "tessera/ops/library/window.h"

#include <algorithm>

#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"

/// Gradients of convolutions and poolings.
namespace tessera::ops {
namespace {

// The placement of windows over one spatial dimension: `in` elements, `out` windows.
struct Lay {
  int64_t in, out, kernel, stride, dilation, begin;
  /// Padding after the last element that the last window reaches; negative: elements that no window reaches.
  int64_t end() const { return (out - 1) * stride + (kernel - 1) * dilation + 1 - in - begin; }
};

int64_t known_extent(const GradientBuilder& b, const Expr& extent) {
  const auto known = extent.constant();
  if (!known) b.refuse("the extent " + extent.str() + " of an image is symbolic; fix it with `shapes`");
  return *known;
}

std::vector<Lay> lay_of(const GradientBuilder& b, const Dims& kernel, const Shape& in, const Shape& out) {
  const Windows windows = windows_of(b.node, kernel);
  std::vector<Lay> lays;
  for (size_t d = 0; d + 2 < in.size(); ++d) {
    Lay lay{known_extent(b, in[d + 2]), known_extent(b, out[d + 2]), windows.kernel[d],
            windows.strides[d],         windows.dilations[d],        windows.begin[d]};
    if (windows.auto_pad.starts_with("SAME")) {
      const int64_t total = std::max<int64_t>(lay.end(), 0);
      lay.begin = windows.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
    lays.push_back(lay);
  }
  return lays;
}

template <typename Field>
std::vector<int64_t> each(const std::vector<Lay>& lays, Field field) {
  std::vector<int64_t> values;
  for (const Lay& lay : lays) values.push_back(field(lay));
  return values;
}

std::vector<Attribute> attributes_of(const std::vector<Lay>& lays, int64_t groups) {
  std::vector<int64_t> pads = each(lays, [](const Lay& lay) { return lay.begin; });
  for (const Lay& lay : lays) pads.push_back(std::max<int64_t>(lay.end(), 0));
  return {{"kernel_shape", each(lays, [](const Lay& lay) { return lay.kernel; }), ""},
          {"strides", each(lays, [](const Lay& lay) { return lay.stride; }), ""},
          {"dilations", each(lays, [](const Lay& lay) { return lay.dilation; }), ""},
          {"pads", pads, ""},
          {"group", groups, ""}};
}

// What windows give back to the elements that they cover: the gradient of a convolution's data.
Value* spread(GradientBuilder& b, Value* g, Value* weight, const std::vector<Lay>& lays, int64_t groups) {
  std::vector<Attribute> attributes = attributes_of(lays, groups);
  attributes.push_back(
      {"output_padding", each(lays, [](const Lay& lay) { return std::max<int64_t>(-lay.end(), 0); }), ""});
  return b.emit("ConvTranspose", {g, weight}, attributes);
}

// A convolution's result, for data that may reach further than its windows do.
Value* gathered(GradientBuilder& b, Value* data, Value* weight, const std::vector<Lay>& lays, int64_t groups) {
  return b.emit("Conv", {data, weight}, attributes_of(lays, groups));
}

// The gradient of a convolution's weight [m, c / groups, k…] from its data [n, c, …] and its result's gradient
// [n, m, …]: a convolution of the one by the other, in which channels and batch change places.
Value* weight_gradient(GradientBuilder& b, Value* data, Value* g, const std::vector<Lay>& lays, int64_t groups) {
  const Shape& from = data->shape();
  const Expr each_group = Expr::exact_divide(from[1], groups).value();
  std::vector<int64_t> turn = all_axes(from.size());
  std::swap(turn[0], turn[1]);
  Value* turned_data = nullptr;
  if (groups == 1) {
    turned_data = b.transpose(data, turn);
  } else {
    Shape cut = {from[0], groups, each_group}, joined = {each_group, from[0] * groups};
    std::vector<int64_t> order = {2, 1, 0};
    for (size_t d = 2; d < from.size(); ++d) {
      cut.push_back(from[d]);
      joined.push_back(from[d]);
      order.push_back(static_cast<int64_t>(d) + 1);
    }
    turned_data = b.reshape(b.transpose(b.reshape(data, cut), order), joined);
  }
  // Strides and dilations change places as well; windows are the result's extents, and there is one for each element of
  // the kernel.
  std::vector<Lay> inverse;
  for (const Lay& lay : lays) inverse.push_back({lay.in, lay.kernel, lay.out, lay.dilation, lay.stride, lay.begin});
  for (size_t d = 0; d < inverse.size(); ++d)
    if (inverse[d].end() < 0) {
      // Elements that no window reaches would make room for one more.
      const auto axis = static_cast<int64_t>(d) + 2;
      turned_data = b.slice(turned_data, axis, 0, inverse[d].in + inverse[d].end());
      inverse[d].in += inverse[d].end();
    }
  Value* weight = gathered(b, turned_data, b.transpose(g, turn), inverse, groups);
  return b.transpose(weight, turn);
}

Dims kernel_of(const GradientBuilder& b) {
  Dims kernel;
  for (size_t d = 2; d < b.x(1)->rank(); ++d) kernel.push_back(known_extent(b, b.x(1)->shape()[d]));
  return kernel;
}

// A kernel of ones for each channel.
Value* ones(GradientBuilder& b, const Dims& kernel) {
  Shape shape = {b.x()->shape()[1], 1};
  for (int64_t extent : kernel) shape.push_back(extent);
  return b.expand(b.number(b.x(), 1), shape);
}

int64_t channels(const GradientBuilder& b) {
  return known_extent(b, b.x()->shape()[1]);
}

void average_pool(GradientBuilder& b) {
  const Dims kernel = b.node.get_ints("kernel_shape");
  const std::vector<Lay> lays = lay_of(b, kernel, b.x()->shape(), b.y()->shape());
  // How many elements each window counts: the product of those along each dimension.
  const bool with_pads = b.node.get_int("count_include_pad", 0) != 0;
  const Windows windows = windows_of(b.node, kernel);
  Value* counts = nullptr;
  for (size_t d = 0; d < lays.size(); ++d) {
    const Lay& lay = lays[d];
    const int64_t before = with_pads ? lay.begin : 0;
    const int64_t after =
        with_pads ? std::max<int64_t>(windows.auto_pad.starts_with("SAME") ? lay.end() : windows.end[d], 0) : 0;
    Shape along(b.x()->rank(), 1);
    along[d + 2] = lay.out;
    Tensor tensor = Tensor::zeros(DType::float32, {lay.out});
    for (int64_t w = 0; w < lay.out; ++w) {
      int64_t count = 0;
      for (int64_t k = 0; k < lay.kernel; ++k) {
        const int64_t at = w * lay.stride - lay.begin + k * lay.dilation;
        count += at >= -before && at < lay.in + after;
      }
      reinterpret_cast<float*>(tensor.mutable_data())[w] = static_cast<float>(count);
    }
    Value* factor = b.reshape(b.cast(b.graph.add_constant("window_elements", tensor), b.g()->dtype()), along);
    counts = counts ? b.mul(counts, factor) : factor;
  }
  b.give(0, spread(b, b.div(b.g(), counts), ones(b, kernel), lays, channels(b)));
}

void max_pool(GradientBuilder& b) {
  const Shape &from = b.x()->shape(), &to = b.y()->shape();
  Expr inside = 1, windows = 1;
  for (size_t d = 2; d < from.size(); ++d) {
    inside = inside * from[d];
    windows = windows * to[d];
  }
  // The indices count all elements of the operand; those within one channel say where the maximum was.
  Value* within = b.emit("Mod", {b.made(1), b.scalar(DType::int64, inside)});
  Value* scattered = b.emit("ScatterElements",
                            {b.zeros(b.x()->dtype(), {from[0], from[1], inside}),
                             b.reshape(within, {to[0], to[1], windows}), b.reshape(b.g(), {to[0], to[1], windows})},
                            {{"axis", int64_t{2}, ""}, {"reduction", std::string("add"), ""}});
  if (b.node.get_int("storage_order", 0) == 0) return b.give(0, b.reshape(scattered, from));
  // The indices count the elements of a channel in column-major order.
  Shape columns = from;
  std::reverse(columns.begin() + 2, columns.end());
  std::vector<int64_t> order = all_axes(from.size());
  std::reverse(order.begin() + 2, order.end());
  b.give(0, b.transpose(b.reshape(scattered, columns), order));
}

// x·|x|^(p − 2), the slope of |x|^p / p.
Value* power_slope(GradientBuilder& b, double p) {
  Value* x = b.x();
  if (p == 2) return x;
  Value* size = b.emit("Pow", {b.unary("Abs", x), b.number(x, p - 1)});
  return b.mul(size, b.unary("Sign", x));
}

// g·y^(1 − p), and 0 where y is 0.
Value* norm_share(GradientBuilder& b, double p) {
  Value* y = b.y();
  if (p == 1) return b.g();
  Value* none = b.emit("Equal", {y, b.number(y, 0)});
  Value* share = b.mul(b.g(), b.emit("Pow", {b.where(none, b.number(y, 1), y), b.number(y, 1 - p)}));
  return b.where(none, b.number(y, 0), share);
}

void lp_pool(GradientBuilder& b) {
  const Dims kernel = b.node.get_ints("kernel_shape");
  const auto p = static_cast<double>(b.node.get_int("p", 2));
  const std::vector<Lay> lays = lay_of(b, kernel, b.x()->shape(), b.y()->shape());
  b.give(0, b.mul(spread(b, norm_share(b, p), ones(b, kernel), lays, channels(b)), power_slope(b, p)));
}

void global_average_pool(GradientBuilder& b) {
  Expr count = 1;
  for (size_t d = 2; d < b.x()->rank(); ++d) count = count * b.x()->shape()[d];
  b.give(0, b.div(b.g(), b.scalar(b.g()->dtype(), count)));
}

void global_max_pool(GradientBuilder& b) {
  std::vector<int64_t> axes;
  for (size_t d = 2; d < b.x()->rank(); ++d) axes.push_back(static_cast<int64_t>(d));
  Value* at = b.cast(b.emit("Equal", {b.x(), b.y()}), b.x()->dtype());
  b.give(0, b.mul(b.div(b.g(), b.sum(at, axes)), at));
}

void global_lp_pool(GradientBuilder& b) {
  const auto p = static_cast<double>(b.node.get_int("p", 2));
  b.give(0, b.mul(norm_share(b, p), power_slope(b, p)));
}

}  // namespace

void convolution_gradient(GradientBuilder& b) {
  Value *data = b.x(0), *weight = b.x(1), *g = b.g();
  const int64_t groups = b.node.get_int("group", 1);
  if (b.wants(2)) b.give(2, b.sum(g, all_but_channels(g->rank()), false));
  const Dims kernel = kernel_of(b);
  if (b.node.is("Conv")) {
    const std::vector<Lay> lays = lay_of(b, kernel, data->shape(), g->shape());
    if (b.wants(0)) b.give(0, spread(b, g, weight, lays, groups));
    if (b.wants(1)) b.give(1, weight_gradient(b, data, g, lays, groups));
    return;
  }
  // A ConvTranspose is the gradient of a Conv whose windows are over its result.
  const Windows windows = windows_of(b.node, kernel);
  const Dims extra = b.node.get_ints("output_padding", Dims(kernel.size(), 0));
  const bool derived = !b.node.get_ints("output_shape").empty() || windows.auto_pad.starts_with("SAME");
  std::vector<Lay> lays;
  for (size_t d = 0; d + 2 < data->rank(); ++d) {
    Lay lay{known_extent(b, g->shape()[d + 2]),
            known_extent(b, data->shape()[d + 2]),
            windows.kernel[d],
            windows.strides[d],
            windows.dilations[d],
            derived ? 0 : windows.begin[d]};
    if (derived) {
      const int64_t total = std::max<int64_t>(lay.end() + extra[d], 0);
      lay.begin = windows.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
    lays.push_back(lay);
  }
  if (b.wants(0)) {
    Value* reached = g;
    std::vector<Lay> exact = lays;
    for (size_t d = 0; d < exact.size(); ++d)
      if (exact[d].end() < 0) {
        reached = b.slice(reached, static_cast<int64_t>(d) + 2, 0, exact[d].in + exact[d].end());
        exact[d].in += exact[d].end();
      }
    b.give(0, gathered(b, reached, weight, exact, groups));
  }
  if (b.wants(1)) b.give(1, weight_gradient(b, g, data, lays, groups));
}

GradientFn pooling_gradient(std::string_view type) {
  constexpr std::pair<std::string_view, GradientFn> kEntries[] = {{"MaxPool", max_pool},
                                                                  {"AveragePool", average_pool},
                                                                  {"LpPool", lp_pool},
                                                                  {"GlobalMaxPool", global_max_pool},
                                                                  {"GlobalAveragePool", global_average_pool},
                                                                  {"GlobalLpPool", global_lp_pool}};
  for (const auto& [name, gradient] : kEntries)
    if (name == type) return gradient;
  return nullptr;
}

}  // namespace tessera::ops
