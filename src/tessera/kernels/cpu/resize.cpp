#include <cmath>

#include "tessera/kernels/cpu/axes.h"
#include "tessera/kernels/cpu/movement.h"
#include "tessera/kernels/cpu/parallel.h"

/// Resize is separable: one dimension after another, each by a table of which positions an element of the result takes
/// with which weights (ONNX's Resize, the coordinate transformations and coefficients of its attribute tables).
namespace tessera::kernels {
namespace {

enum class Mode { nearest, linear, cubic };

struct Interpolation {
  Mode mode = Mode::nearest;
  std::string coordinates, nearest;
  double cubic_a = -0.75;
  bool exclude_outside = false, antialias = false;
};

/// Along one dimension: result position i is Σ weights[k]·in[positions[k]] over k in [begins[i], begins[i + 1]).
struct Taps {
  AxisView view;  ///< of what goes in
  int64_t result = 0;
  std::vector<int64_t> begins{0}, positions;
  std::vector<double> weights;
};

double source_coordinate(const Interpolation& how, int64_t at, int64_t in, int64_t out, double scale) {
  const double x = static_cast<double>(at);
  if (how.coordinates == "asymmetric") return x / scale;
  if (how.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / scale;
  if (how.coordinates == "align_corners") {
    const double width = scale * static_cast<double>(in);  // before it is rounded down, as the standard has it
    return out == 1 ? 0 : x * static_cast<double>(in - 1) / (width - 1);
  }
  if (how.coordinates == "pytorch_half_pixel" && out == 1) return 0;
  const double centre = (x + 0.5) / scale - 0.5;
  if (how.coordinates != "half_pixel_symmetric") return centre;
  const double adjustment = static_cast<double>(out) / (scale * static_cast<double>(in));
  return static_cast<double>(in) / 2 * (1 - adjustment) + centre;
}

int64_t nearest_position(const std::string& rounding, double x) {
  if (rounding == "floor") return static_cast<int64_t>(std::floor(x));
  if (rounding == "ceil") return static_cast<int64_t>(std::ceil(x));
  return static_cast<int64_t>(rounding == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5));
}

/// The interpolating kernel at distance x from its centre.
double kernel_at(const Interpolation& how, double x) {
  x = std::abs(x);
  if (how.mode == Mode::linear) return std::max(0.0, 1 - x);
  const double a = how.cubic_a;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

void add_taps(Taps& taps, const Interpolation& how, double x, int64_t in, double scale) {
  auto clamped = [&](int64_t position) { return std::clamp<int64_t>(position, 0, in - 1); };
  if (how.mode == Mode::nearest) {
    taps.positions.push_back(clamped(nearest_position(how.nearest, x)));
    taps.weights.push_back(1);
  } else {
    const double stretch = how.antialias ? std::min(scale, 1.0) : 1.0;
    const double reach = (how.mode == Mode::linear ? 1 : 2) / stretch;
    const size_t first = taps.weights.size();
    double sum = 0;
    for (int64_t i = static_cast<int64_t>(std::ceil(x - reach)); static_cast<double>(i) < x + reach; ++i) {
      const double weight = kernel_at(how, (static_cast<double>(i) - x) * stretch);
      if (weight == 0 || (how.exclude_outside && i != clamped(i))) continue;
      taps.positions.push_back(clamped(i));
      taps.weights.push_back(weight);
      sum += weight;
    }
    for (size_t k = first; k < taps.weights.size(); ++k) taps.weights[k] /= sum;
  }
  taps.begins.push_back(static_cast<int64_t>(taps.positions.size()));
}

template <typename In, typename Out>
void resize_along(const Taps& taps, const In* in, Out* out, int threads) {
  const int64_t inner = taps.view.inner;
  for_ranges(taps.view.outer * taps.result, taps.view.outer * taps.result * inner, threads,
             [&](int64_t begin, int64_t end) {
               for (int64_t at = begin; at < end; ++at) {
                 const int64_t i = at % taps.result;
                 const In* lines = in + at / taps.result * taps.view.extent * inner;
                 Out* line = out + at * inner;
                 const int64_t first = taps.begins[i], last = taps.begins[i + 1];
                 if (last - first == 1 && taps.weights[first] == 1) {
                   const In* source = lines + taps.positions[first] * inner;
                   for (int64_t j = 0; j < inner; ++j) line[j] = store<Out>(load(source[j]));
                   continue;
                 }
                 for (int64_t j = 0; j < inner; ++j) {
                   Compute<In> sum = 0;
                   for (int64_t k = first; k < last; ++k)
                     sum += static_cast<Compute<In>>(taps.weights[k]) * load(lines[taps.positions[k] * inner + j]);
                   line[j] = store<Out>(sum);
                 }
               }
             });
}

Interpolation interpolation_of(const Node& node) {
  auto one_of = [&](const std::string& value, std::initializer_list<std::string_view> known, std::string_view what) {
    if (std::find(known.begin(), known.end(), value) == known.end())
      fail("kernel", "{}: {} '{}' is not supported; use one of {}", node.label(), what, value, fmt::join(known, ", "));
    return value;
  };
  Interpolation how;
  const std::string mode = one_of(node.get_string("mode", "nearest"), {"nearest", "linear", "cubic"}, "mode");
  how.mode = mode == "nearest" ? Mode::nearest : mode == "linear" ? Mode::linear : Mode::cubic;
  how.coordinates = one_of(node.get_string("coordinate_transformation_mode", "half_pixel"),
                           {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                            "tf_half_pixel_for_nn"},
                           "coordinate_transformation_mode");
  how.nearest = one_of(node.get_string("nearest_mode", "round_prefer_floor"),
                       {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}, "nearest_mode");
  how.cubic_a = node.get_float("cubic_coeff_a", -0.75f);
  how.exclude_outside = node.get_int("exclude_outside", 0) != 0;
  how.antialias = node.get_int("antialias", 0) != 0;
  return how;
}

/// The scale of each dimension: as given, or the ratio of the extents.
std::vector<double> scales_of(const PrepareContext& context, const Dims& in, const Dims& out) {
  std::vector<double> scales;
  for (size_t d = 0; d < in.size(); ++d)
    scales.push_back(in[d] == 0 ? 1 : static_cast<double>(out[d]) / static_cast<double>(in[d]));
  if (!context.has_input(2) || context.inputs[2].count() == 0) return scales;
  if (!context.known[2] || context.inputs[2].dtype != DType::float32)
    fail("kernel", "{}: its scales ('{}') must be float32 constants", context.node.label(),
         context.node.input(2)->name);
  Dims axes = context.node.get_ints("axes");
  for (int64_t i = 0; i < context.inputs[2].count(); ++i) {
    const int64_t d = axes.empty() ? i : resolve_axis(context.node, axes.at(i), context.inputs[0].rank());
    scales[d] = static_cast<const float*>(context.known[2])[i];
  }
  return scales;
}

std::unique_ptr<Kernel> prepare_resize(const PrepareContext& context) {
  const Node& node = context.node;
  const Interpolation how = interpolation_of(node);
  const TensorDesc &x = context.inputs[0], &y = context.outputs[0];
  const std::vector<double> scales = scales_of(context, x.dims, y.dims);
  if (x.rank() != y.rank()) fail("kernel", "{}: operand and result differ in rank", node.label());
  if (y.count() == 0) return make_kernel([](const KernelArgs&) {});
  if (x.count() == 0) fail("kernel", "{}: there is nothing to interpolate between", node.label());
  std::vector<Taps> passes;
  Dims dims = x.dims;
  int64_t largest = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == y.dims[d] && scales[d] == 1) continue;
    Taps taps{AxisView(dims, static_cast<int64_t>(d)), y.dims[d], {0}, {}, {}};
    for (int64_t i = 0; i < y.dims[d]; ++i)
      add_taps(taps, how, source_coordinate(how, i, dims[d], y.dims[d], scales[d]), dims[d], scales[d]);
    dims[d] = y.dims[d];
    largest = std::max(largest, count_of(dims));
    passes.push_back(std::move(taps));
  }
  auto prepare = [&]<typename T>() -> std::unique_ptr<Kernel> {
    using C = Compute<T>;
    const size_t between = passes.size() > 1 ? static_cast<size_t>(largest) * sizeof(C) : 0;
    return make_kernel(
        [=, bytes = x.bytes(), passes = std::move(passes), threads = context.threads](const KernelArgs& args) {
          if (passes.empty()) {
            std::copy_n(args.in<std::byte>(0), bytes, args.out<std::byte>());
          } else if (passes.size() == 1) {
            resize_along(passes[0], args.in<T>(0), args.out<T>(), threads);
          } else {
            C* buffers[] = {static_cast<C*>(args.scratch), static_cast<C*>(args.scratch) + largest};
            resize_along(passes.front(), args.in<T>(0), buffers[0], threads);
            for (size_t p = 1; p + 1 < passes.size(); ++p)
              resize_along(passes[p], buffers[(p + 1) % 2], buffers[p % 2], threads);
            resize_along(passes.back(), buffers[passes.size() % 2], args.out<T>(), threads);
          }
        },
        2 * between);
  };
  return how.mode == Mode::nearest ? dispatch(NumberTypes(), node, x.dtype, prepare)
                                   : dispatch(FloatTypes(), node, x.dtype, prepare);
}

}  // namespace

std::vector<KernelEntry> resizing_kernels() {
  return {{"Resize", "", prepare_resize, {}}};
}

}  // namespace tessera::kernels
