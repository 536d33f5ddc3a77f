#include <cmath>
#include <numbers>

#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

// Larger tables are not made while compiling.
constexpr int64_t kMostElements = int64_t{1} << 28;

constexpr double kTurn = 2 * std::numbers::pi;

// The operand's only element, which must be known.
double number_of(const Lowerer& l, size_t operand, std::string_view what) {
  const auto number = scalar_of(l.in(operand));
  if (!number) fail_node(l.node, "its {} must be known before the run; make it a constant or an input", what);
  return *number;
}

Value* constant(Lowerer& l, DType dtype, Dims dims, const std::vector<double>& elements) {
  return l.b.cast(l.b.graph.add_constant("table", Tensor::of(DType::float64, std::move(dims), elements)), dtype);
}

DType output_type(const Lowerer& l) {
  return static_cast<DType>(l.node.get_int("output_datatype", static_cast<int64_t>(DType::float32)));
}

// A sum of a[k] · cos (k · 2π · n / N).
Values cosine_window(Lowerer& l, const std::vector<double>& weights) {
  const auto size = static_cast<int64_t>(number_of(l, 0, "size"));
  if (size < 0 || size > kMostElements) fail_node(l.node, "its size is {}; it must be 0 to {}", size, kMostElements);
  const auto period = static_cast<double>(l.node.get_int("periodic", 1) != 0 ? size : size - 1);
  std::vector<double> elements(static_cast<size_t>(size));
  for (size_t n = 0; n < elements.size(); ++n)
    for (size_t k = 0; k < weights.size(); ++k)
      elements[n] += weights[k] * (period == 0 ? 1 : std::cos(kTurn * static_cast<double>(k * n) / period));
  return {constant(l, output_type(l), {size}, elements)};
}

Values hann(Lowerer& l) {
  return cosine_window(l, {0.5, -0.5});
}
Values hamming(Lowerer& l) {
  return cosine_window(l, {25.0 / 46, -21.0 / 46});
}
Values blackman(Lowerer& l) {
  return cosine_window(l, {0.42, -0.5, 0.08});
}

// Triangular filters over the bins of a transform; their peaks are evenly spaced on the mel scale.
Values mel_weights(Lowerer& l) {
  const auto mels = static_cast<int64_t>(number_of(l, 0, "num_mel_bins"));
  const auto length = static_cast<int64_t>(number_of(l, 1, "dft_length"));
  const double rate = number_of(l, 2, "sample_rate");
  const auto to_mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = to_mel(number_of(l, 3, "lower_edge_hertz")), high = to_mel(number_of(l, 4, "upper_edge_hertz"));
  constexpr int64_t kMost = 1 << 14;
  if (mels < 0 || length < 0 || mels > kMost || length > kMost || !(rate > 0) || !std::isfinite(low + high))
    fail_node(l.node,
              "its {} mel bins and length {} must be 0 to {}, and its sample rate and edges must be valid frequencies",
              mels, length, kMost);
  const int64_t bins = length / 2 + 1;
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < mels + 2; ++i) {
    const double mel = low + (high - low) / static_cast<double>(mels + 2) * static_cast<double>(i);
    const double hertz = 700 * (std::pow(10, mel / 2595) - 1);
    edges.push_back(static_cast<int64_t>(std::floor(static_cast<double>(length + 1) * hertz / rate)));
  }
  std::vector<double> weights(static_cast<size_t>(bins * mels));
  const auto set = [&](int64_t bin, int64_t mel, double weight) {
    if (bin >= 0 && bin < bins) weights[static_cast<size_t>(bin * mels + mel)] = weight;
  };
  for (int64_t mel = 0; mel < mels; ++mel) {
    const int64_t from = edges[static_cast<size_t>(mel)], top = edges[static_cast<size_t>(mel) + 1],
                  to = edges[static_cast<size_t>(mel) + 2];
    if (top == from) set(top, mel, 1);
    for (int64_t bin = from; bin < top + 1 && top != from; ++bin)
      set(bin, mel, static_cast<double>(bin - from) / static_cast<double>(top - from));
    for (int64_t bin = top; bin < to && to != top; ++bin)
      set(bin, mel, static_cast<double>(to - bin) / static_cast<double>(to - top));
  }
  return {constant(l, output_type(l), {bins, mels}, weights)};
}

/// A discrete Fourier transform, as products with matrices of cosines and sines.
struct Fourier {
  Lowerer& l;
  size_t axis;
  int64_t length;
  bool inverse, onesided;

  // [bins, elements]: factor · cos or sin (2π · bin · element / length). With `by_weight`, a column that stands for its
  // mirror image, too, counts twice.
  Value* matrix(DType dtype, int64_t rows, int64_t columns, bool sine, double factor, bool by_weight = false) const {
    std::vector<double> elements;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const double angle = kTurn * static_cast<double>((r * c) % length) / static_cast<double>(length);
        const bool alone = c == 0 || (length % 2 == 0 && c == length / 2);
        elements.push_back((sine ? std::sin(angle) : std::cos(angle)) * factor * (by_weight && !alone ? 2 : 1));
      }
    return constant(l, dtype, {rows, columns}, elements);
  }

  // The first `wanted` elements of x, with zeros after them if there are fewer.
  Value* fit(Value* x, int64_t wanted) const {
    const Expr have = x->shape().at(axis);
    if (have.is(wanted)) return x;
    const auto known = have.constant();
    if (!known) fail_node(l.node, "the length of its dimension {}, {}, must be a number", axis, have.str());
    if (*known > wanted) return l.b.slice(x, static_cast<int64_t>(axis), 0, wanted);
    Shape rest = x->shape();
    rest[axis] = wanted - *known;
    return l.b.emit("Concat", {x, l.b.zeros(x->dtype(), rest)}, {attribute("axis", static_cast<int64_t>(axis))});
  }

  Value* part(Value* x, int64_t index) const {
    const auto last = static_cast<int64_t>(x->rank()) - 1;
    Shape shape = x->shape();
    shape.pop_back();
    return l.b.reshape(l.b.slice(x, last, index, index + 1), shape);
  }

  Value* run(Value* x) const {
    constexpr int64_t kMost = 1 << 14;
    if (length > kMost)
      fail_node(l.node,
                "its length is {}, and a transform multiplies by a matrix of as many rows and columns; at "
                "most {} are supported",
                length, kMost);
    const DType dtype = x->dtype();
    const bool complex = x->shape().back().is(2);
    if (!complex && !x->shape().back().is(1))
      fail_node(l.node, "the last dimension of its input, {}, must be 1 (real) or 2 (complex)",
                x->shape().back().str());
    const int64_t bins = onesided ? length / 2 + 1 : length;
    const double factor = inverse ? 1.0 / static_cast<double>(length) : 1;
    x = fit(x, inverse && onesided ? bins : length);
    if (inverse && onesided) {
      Value* y = times(part(x, 0), matrix(dtype, length, bins, false, factor, true));
      if (complex) y = l.b.sub(y, times(part(x, 1), matrix(dtype, length, bins, true, factor, true)));
      return column(y);
    }
    return transformed(x, matrix(dtype, bins, length, false, factor),
                       matrix(dtype, bins, length, true, inverse ? -factor : factor));
  }

  Value* times(Value* a, Value* matrix) const { return l.b.multiply_along(a, matrix, axis); }
  Value* column(Value* a) const {
    Shape shape = a->shape();
    shape.push_back(1);
    return l.b.reshape(a, shape);
  }

  Value* transformed(Value* x, Value* cosines, Value* sines) const {
    Value* real = part(x, 0);
    Value* imaginary = x->shape().back().is(2) ? part(x, 1) : nullptr;
    Value* out_real = times(real, cosines);
    Value* out_imaginary = l.b.neg(times(real, sines));
    if (imaginary) {
      out_real = l.b.add(out_real, times(imaginary, sines));
      out_imaginary = l.b.add(times(imaginary, cosines), out_imaginary);
    }
    return l.b.emit("Concat", {column(out_real), column(out_imaginary)},
                    {attribute("axis", static_cast<int64_t>(x->rank()) - 1)});
  }
};

// Along a dimension whose length is a symbol; a run computes the matrices.
Value* fourier_of_symbol(Lowerer& l, Value* x, size_t axis, bool inverse, bool onesided) {
  const Expr length = x->shape().at(axis), bins = onesided ? floordiv(length, 2) + 1 : length;
  Value* places = l.b.mul(l.b.reshape(l.b.range(bins), {bins, 1}), l.b.reshape(l.b.range(length), {1, length}));
  Value* within = l.b.emit("Mod", {places, l.b.scalar(DType::int64, length)});
  Value* count = l.b.cast(l.b.scalar(DType::int64, length), x->dtype());
  Value* angles = l.b.div(l.b.mul(l.b.cast(within, x->dtype()), kTurn), count);
  Value *cosines = l.b.emit("Cos", {angles}), *sines = l.b.emit("Sin", {angles});
  if (inverse) {
    cosines = l.b.div(cosines, count);
    sines = l.b.neg(l.b.div(sines, count));
  }
  return Fourier{l, axis, 0, inverse, onesided}.transformed(x, cosines, sines);
}

Values fourier(Lowerer& l) {
  Value* x = l.in(0);
  const size_t rank = x->rank();
  const int64_t given = l.has(2) ? static_cast<int64_t>(number_of(l, 2, "axis")) : -2;
  const size_t axis = ops::normalize_axis(l.node, given, rank);
  if (axis + 1 == rank) fail_node(l.node, "its axis is the last dimension, which holds real and imaginary parts");
  const bool inverse = l.node.get_int("inverse", 0) != 0, onesided = l.node.get_int("onesided", 0) != 0;
  if (!l.has(1) && !x->shape().at(axis).is_constant() && !(inverse && onesided))
    return {fourier_of_symbol(l, x, axis, inverse, onesided)};
  int64_t length = 0;
  if (l.has(1)) {
    length = static_cast<int64_t>(number_of(l, 1, "dft_length"));
  } else {
    const auto extent = x->shape().at(axis).constant();
    if (!extent)
      fail_node(l.node, "the length of its dimension {}, {}, must be a number", axis, x->shape().at(axis).str());
    length = inverse && onesided ? 2 * (*extent - 1) : *extent;
  }
  if (length < 1) fail_node(l.node, "its length is {}; it must be at least 1", length);
  return {Fourier{l, axis, length, inverse, onesided}.run(x)};
}

// The transforms of windows of the signal that begin `step` apart.
Values short_fourier(Lowerer& l) {
  Value* signal = l.in(0);
  const auto step = static_cast<int64_t>(number_of(l, 1, "frame_step"));
  Value* window = l.has(2) ? l.in(2) : nullptr;
  const auto window_length = window ? window->shape().at(0).constant() : std::nullopt;
  if (!l.has(3) && !window_length) fail_node(l.node, "it needs a frame_length, or a window of known length");
  const int64_t length = l.has(3) ? static_cast<int64_t>(number_of(l, 3, "frame_length")) : *window_length;
  if (step < 1 || length < 1) fail_node(l.node, "its step {} and frame length {} must be at least 1", step, length);
  if (signal->rank() == 2) {
    Shape shape = signal->shape();
    shape.push_back(1);
    signal = l.b.reshape(signal, shape);
  }
  const Expr frames = floordiv(signal->shape().at(1) - length, step) + 1;
  Value* begin = l.b.reshape(l.b.mul(l.b.range(frames), static_cast<double>(step)), {frames, 1});
  Value* places = l.b.add(begin, l.b.reshape(l.b.range(length), {1, Expr(length)}));
  Value* framed = l.b.emit("Gather", {signal, places}, {attribute("axis", int64_t{1})});
  if (window) framed = l.b.mul(framed, l.b.reshape(l.b.cast(window, signal->dtype()), {Expr(length), 1}));
  return {Fourier{l, 2, length, false, l.node.get_int("onesided", 1) != 0}.run(framed)};
}

}  // namespace

std::vector<Lowering> signal_lowerings() {
  return {
      {"HannWindow", 1, hann, {0}},         {"HammingWindow", 1, hamming, {0}},
      {"BlackmanWindow", 1, blackman, {0}}, {"MelWeightMatrix", 5, mel_weights, {0, 1, 2, 3, 4}},
      {"DFT", 1, fourier, {1, 2}},          {"STFT", 2, short_fourier, {1, 3}},
  };
}

}  // namespace tessera::rewrite
