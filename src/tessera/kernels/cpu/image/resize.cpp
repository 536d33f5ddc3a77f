#include "tessera/ir/resize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/checked.h"
#include "tessera/base/saturated.h"
#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/registry.h"

/// Resize is separable: it handles one dimension after another, each by a table of the positions and weights that make
/// an element of the result (ONNX's Resize, the coordinate transformations and coefficients of its attribute tables).
/// The tables are made in scratch memory at every run, so that the plan counts them; they are small beside the
/// elements.
namespace tessera::kernels {
namespace {

enum class Mode { nearest, linear, cubic };
enum class Rounding { prefer_floor, prefer_ceil, floor, ceil };

struct Interpolation {
  Mode mode = Mode::nearest;
  ResizePlaces places = ResizePlaces::half_pixel;
  Rounding nearest = Rounding::prefer_floor;
  double cubic_a = -0.75;
  bool exclude_outside = false, antialias = false;
  double outside = 0;  ///< an element whose place is outside of the operand
};

/// A part of a result, and of the operand that it is made from, along one dimension: the number of its first element,
/// and how many there are in all.
struct Share {
  int64_t first = 0, all = 0;                     ///< of the result
  int64_t first_of_operand = 0, operand_all = 0;  ///< of the operand

  bool is_all(int64_t extent, int64_t result) const { return extent == operand_all && result == all; }
};

/// Along one dimension.
struct Pass {
  AxisView view;  ///< of the input
  int64_t result = 0;
  Share share;
  double scale = 1;
  double start = 0, end = 1;                               ///< the region that is taken, of the whole
  int64_t most = 1;                                        ///< positions per element of the result
  size_t counts_at = 0, positions_at = 0, weights_at = 0;  ///< the table, in scratch memory
};

/// Result position i is Σ weights[k]·in[positions[k]] over the counts[i] entries k from i·most on.
struct Taps {
  int64_t* counts;
  int64_t* positions;
  double* weights;

  Taps(const Pass& pass, void* scratch)
      : counts(scratch_at<int64_t>(scratch, pass.counts_at)),
        positions(scratch_at<int64_t>(scratch, pass.positions_at)),
        weights(scratch_at<double>(scratch, pass.weights_at)) {}
};

/// The place of an element in a region, whose corners are those of the result.
double region_coordinate(const Pass& pass, int64_t at) {
  const auto last = static_cast<double>(pass.share.operand_all - 1);
  if (pass.share.all == 1) return (pass.start + pass.end) / 2 * last;
  return (pass.start + static_cast<double>(at) * (pass.end - pass.start) / static_cast<double>(pass.share.all - 1)) *
         last;
}

/// The place of result element i of this pass in the whole operand.
double place_of(const Interpolation& how, const Pass& pass, int64_t i) {
  const int64_t at = pass.share.first + i;
  return how.places == ResizePlaces::tf_crop_and_resize
             ? region_coordinate(pass, at)
             : resize_place(how.places, at, pass.share.operand_all, pass.share.all, pass.scale);
}

int64_t nearest_position(Rounding rounding, double x) {
  switch (rounding) {
    case Rounding::floor:
      return saturated(std::floor(x));
    case Rounding::ceil:
      return saturated(std::ceil(x));
    case Rounding::prefer_ceil:
      return saturated(std::floor(x + 0.5));
    case Rounding::prefer_floor:
      return saturated(std::ceil(x - 0.5));
  }
  return 0;
}

/// The interpolating kernel at distance x from its centre.
double kernel_at(const Interpolation& how, double x) {
  x = std::abs(x);
  if (how.mode == Mode::linear) return std::max(0.0, 1 - x);
  const double a = how.cubic_a;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// The kernel's reach from its centre, in input elements.
double reach_of(const Interpolation& how, double scale) {
  return (how.mode == Mode::linear ? 1 : 2) / (how.antialias ? std::min(scale, 1.0) : 1.0);
}

void fill_entry(const Interpolation& how, const Pass& pass, const Taps& taps, int64_t i) {
  const int64_t in = pass.share.operand_all;
  const double x = place_of(how, pass, i);
  if (how.places == ResizePlaces::tf_crop_and_resize && !(x >= 0 && x <= static_cast<double>(in - 1))) {
    taps.counts[i] = 0;
    return;
  }
  auto clamped = [&](int64_t position) { return std::clamp<int64_t>(position, 0, in - 1); };
  auto held = [&](int64_t position) {
    return std::clamp<int64_t>(clamped(position) - pass.share.first_of_operand, 0, pass.view.extent - 1);
  };
  int64_t* positions = taps.positions + i * pass.most;
  double* weights = taps.weights + i * pass.most;
  int64_t count = 0;
  if (how.mode == Mode::nearest) {
    positions[0] = held(nearest_position(how.nearest, x));
    weights[0] = 1;
    count = 1;
  } else {
    const double stretch = how.antialias ? std::min(pass.scale, 1.0) : 1.0, reach = reach_of(how, pass.scale);
    double sum = 0;
    for (int64_t at = static_cast<int64_t>(std::ceil(x - reach)); static_cast<double>(at) < x + reach; ++at) {
      const double weight = kernel_at(how, (static_cast<double>(at) - x) * stretch);
      if (weight == 0 || (how.exclude_outside && at != clamped(at)) || count == pass.most) continue;
      positions[count] = held(at);
      weights[count++] = weight;
      sum += weight;
    }
    for (int64_t k = 0; k < count; ++k) weights[k] /= sum;
  }
  taps.counts[i] = count;
}

void fill_table(const Interpolation& how, const Pass& pass, const Taps& taps, int threads) {
  for_ranges(pass.result, pass.result * pass.most, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fill_entry(how, pass, taps, i);
  });
}

template <typename In, typename Out>
void resize_along(const Pass& pass, const Taps& taps, const In* in, Out* out, double outside, int threads) {
  const int64_t inner = pass.view.inner;
  for_ranges(pass.view.outer * pass.result, pass.view.outer * pass.result * inner, threads,
             [&](int64_t begin, int64_t end) {
               for (int64_t at = begin; at < end; ++at) {
                 const int64_t i = at % pass.result;
                 const In* lines = in + at / pass.result * pass.view.extent * inner;
                 Out* line = out + at * inner;
                 const int64_t first = i * pass.most, last = first + taps.counts[i];
                 if (last == first) {
                   std::fill_n(line, inner, store<Out>(static_cast<Compute<Out>>(outside)));
                   continue;
                 }
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

/// The meaning of an attribute's word, by a table.
template <typename Meaning, size_t N>
Meaning meaning_of(const Node& node, const std::array<std::pair<std::string_view, Meaning>, N>& words,
                   std::string_view attribute) {
  const std::string given = node.get_string(attribute, words[0].first);
  std::vector<std::string_view> known;
  for (const auto& [word, meaning] : words) {
    if (given == word) return meaning;
    known.push_back(word);
  }
  fail("kernel", "{}: {} '{}' is not supported; use one of {}", node.label(), attribute, given, fmt::join(known, ", "));
}

constexpr std::array<std::pair<std::string_view, Mode>, 3> kModes = {
    {{"nearest", Mode::nearest}, {"linear", Mode::linear}, {"cubic", Mode::cubic}}};
constexpr std::array<std::pair<std::string_view, Rounding>, 4> kRoundings = {
    {{"round_prefer_floor", Rounding::prefer_floor},
     {"round_prefer_ceil", Rounding::prefer_ceil},
     {"floor", Rounding::floor},
     {"ceil", Rounding::ceil}}};

Interpolation interpolation_of(const Node& node) {
  Interpolation how;
  how.mode = meaning_of(node, kModes, "mode");
  how.places = meaning_of(node, kResizePlaces, "coordinate_transformation_mode");
  how.nearest = meaning_of(node, kRoundings, "nearest_mode");
  how.cubic_a = node.get_float("cubic_coeff_a", -0.75f);
  how.exclude_outside = node.get_int("exclude_outside", 0) != 0;
  how.outside = node.get_float("extrapolation_value", 0);
  how.antialias = node.get_int("antialias", 0) != 0;
  return how;
}

/// The share of every dimension: all of it, or as the operand `place` says (ops/resize.cpp).
std::vector<Share> shares_of(const PrepareContext& context, const Dims& in, const Dims& out) {
  std::vector<Share> shares;
  if (!context.has_input(kResizePlace)) {
    for (size_t d = 0; d < in.size(); ++d) shares.push_back({0, out[d], 0, in[d]});
    return shares;
  }
  const std::vector<int64_t> place = context.known_ints(kResizePlace);
  constexpr int64_t most = int64_t{1} << 31;
  if (place.size() != kResizePlaceNumbers * in.size() ||
      std::any_of(place.begin(), place.end(), [](int64_t n) { return n < 0 || n >= most; }))
    fail("kernel", "{}: its place is [{}]; it must be {} numbers from 0 to {} for each dimension", context.node.label(),
         fmt::join(place, ", "), kResizePlaceNumbers, most - 1);
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t* at = place.data() + kResizePlaceNumbers * d;
    shares.push_back({at[0], at[2], at[3], at[4]});
    if (at[0] + out[d] > at[2] || at[3] + in[d] > at[4])
      fail("kernel", "{}: its place says that its {} results begin at {} of {}, and its {} elements at {} of {}",
           context.node.label(), out[d], at[0], at[2], in[d], at[3], at[4]);
  }
  return shares;
}

/// The scale of each dimension: as given, or the ratio of the extents.
std::vector<double> scales_of(const PrepareContext& context, const std::vector<Share>& shares) {
  std::vector<double> scales;
  for (const Share& share : shares)
    scales.push_back(share.operand_all == 0 ? 1
                                            : static_cast<double>(share.all) / static_cast<double>(share.operand_all));
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

/// The region of each dimension, as [start, end] of the whole.
std::vector<std::pair<double, double>> regions_of(const PrepareContext& context) {
  const int rank = context.inputs[0].rank();
  std::vector<std::pair<double, double>> regions(static_cast<size_t>(rank), {0, 1});
  Dims axes = context.node.get_ints("axes");
  if (axes.empty())
    for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
  const auto count = static_cast<int64_t>(axes.size());
  if (!context.has_input(1) || !context.known[1] || context.inputs[1].count() != 2 * count)
    fail("kernel", "{}: its region (roi) must be known before the run, and have {} numbers", context.node.label(),
         2 * count);
  for (int64_t i = 0; i < count; ++i) {
    const auto number = [&](int64_t at) {
      return dispatch(FloatTypes(), context.node, context.inputs[1].dtype, [&]<typename T>() {
        return static_cast<double>(load(static_cast<const T*>(context.known[1])[at]));
      });
    };
    regions[static_cast<size_t>(resolve_axis(context.node, axes[static_cast<size_t>(i)], rank))] = {number(i),
                                                                                                    number(count + i)};
  }
  return regions;
}

/// Positions within the kernel's reach. Scales that make at least one element reach no further than a few extents.
int64_t most_taps(const Node& node, const Interpolation& how, const Pass& pass) {
  const double most = std::floor(2 * reach_of(how, pass.scale)) + 1;
  if (!(most <= 4.0 * static_cast<double>(pass.share.operand_all) + 8))
    fail("kernel", "{}: a scale of {} leaves nothing of {} elements", node.label(), pass.scale, pass.share.operand_all);
  return static_cast<int64_t>(most);
}

/// An error if the pass reads elements that its part of the operand does not have.
void require_held(const Node& node, const Interpolation& how, const Pass& pass) {
  const double reach = how.mode == Mode::nearest ? 1 : reach_of(how, pass.scale);
  const auto within = [&](double at) { return std::clamp(at, 0.0, static_cast<double>(pass.share.operand_all - 1)); };
  const auto begin = static_cast<double>(pass.share.first_of_operand);
  const bool held = within(std::ceil(place_of(how, pass, 0) - reach)) >= begin &&
                    within(std::ceil(place_of(how, pass, pass.result - 1) + reach) - 1) <
                        begin + static_cast<double>(pass.view.extent);
  if (!held)
    fail("kernel", "{}: its results from {} to {} read more than the elements from {} to {} that it has", node.label(),
         pass.share.first, pass.share.first + pass.result - 1, pass.share.first_of_operand,
         pass.share.first_of_operand + pass.view.extent - 1);
}

std::unique_ptr<Kernel> prepare_resize(const PrepareContext& context) {
  const Node& node = context.node;
  const Interpolation how = interpolation_of(node);
  const TensorDesc &x = context.inputs[0], &y = context.outputs[0];
  if (x.rank() != y.rank()) fail("kernel", "{}: operand and result differ in rank", node.label());
  const std::vector<Share> shares = shares_of(context, x.dims, y.dims);
  const std::vector<double> scales = scales_of(context, shares);
  if (y.count() == 0) return make_kernel([](const KernelArgs&) {});
  if (x.count() == 0) fail("kernel", "{}: there is nothing to interpolate between", node.label());
  const bool region = how.places == ResizePlaces::tf_crop_and_resize;
  std::vector<std::pair<double, double>> regions(x.dims.size(), {0, 1});
  if (region) regions = regions_of(context);
  std::vector<Pass> passes;
  ScratchPlan scratch;
  Dims dims = x.dims;
  int64_t largest = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const Share& share = shares[d];
    if (dims[d] == y.dims[d] && share.all == share.operand_all && scales[d] == 1 && regions[d] == std::pair(0.0, 1.0))
      continue;
    Pass pass{.view = AxisView(dims, static_cast<int64_t>(d)),
              .result = y.dims[d],
              .share = share,
              .scale = scales[d],
              .start = regions[d].first,
              .end = regions[d].second};
    if (how.mode != Mode::nearest) pass.most = most_taps(node, how, pass);
    if (!share.is_all(dims[d], y.dims[d])) require_held(node, how, pass);
    pass.counts_at = scratch.add(checked_bytes({pass.result, sizeof(int64_t)}, node.label()));
    pass.positions_at = scratch.add(checked_bytes({pass.result, pass.most, sizeof(int64_t)}, node.label()));
    pass.weights_at = scratch.add(checked_bytes({pass.result, pass.most, sizeof(double)}, node.label()));
    dims[d] = y.dims[d];
    require_countable(DType::float64, dims, node.output(0)->name + " on the way");
    largest = std::max(largest, count_of(dims));
    passes.push_back(pass);
  }
  auto prepare = [&]<typename T>() -> std::unique_ptr<Kernel> {
    using C = Compute<T>;
    const size_t between = passes.size() > 1 ? static_cast<size_t>(largest) * sizeof(C) : 0;
    const std::array<size_t, 2> buffers_at = {scratch.add(between), scratch.add(passes.size() > 2 ? between : 0)};
    return make_kernel(
        [=, bytes = x.bytes(), passes = std::move(passes), threads = context.threads](const KernelArgs& args) {
          if (passes.empty()) return void(std::copy_n(args.in<std::byte>(0), bytes, args.out<std::byte>()));
          auto buffer = [&](size_t p) { return scratch_at<C>(args.scratch, buffers_at[p % 2]); };  // pass p's result
          for (size_t p = 0; p < passes.size(); ++p) {
            const Pass& pass = passes[p];
            const Taps taps(pass, args.scratch);
            fill_table(how, pass, taps, threads);
            const bool first = p == 0, last = p + 1 == passes.size();
            if (first && last)
              resize_along(pass, taps, args.in<T>(0), args.out<T>(), how.outside, threads);
            else if (first)
              resize_along(pass, taps, args.in<T>(0), buffer(p), how.outside, threads);
            else if (last)
              resize_along(pass, taps, buffer(p + 1), args.out<T>(), how.outside, threads);
            else
              resize_along(pass, taps, buffer(p + 1), buffer(p), how.outside, threads);
          }
        },
        scratch.bytes());
  };
  return how.mode == Mode::nearest ? dispatch(NumberTypes(), node, x.dtype, prepare)
                                   : dispatch(FloatTypes(), node, x.dtype, prepare);
}

}  // namespace

std::vector<KernelEntry> resize_kernels() {
  return {{"Resize", "", prepare_resize, {}}, {"Resize", "tessera", prepare_resize, {}}};
}

}  // namespace tessera::kernels
