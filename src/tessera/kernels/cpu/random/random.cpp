#include "tessera/ir/random.h"

#include <array>
#include <cstring>
#include <limits>

#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/require.h"
#include "tessera/kernels/registry.h"

/// Operators that draw random numbers (ops/random.h).
namespace tessera::kernels {
namespace {

// Words are made so many at a time, on the stack.
constexpr int64_t kChunk = 256;

// Where the elements of a shard are in the whole tensor: a box of it, or all of it.
class Places {
 public:
  // `index` as in ops/random.h; null: the whole.
  Places(const int64_t* index, size_t length) : box_(index ? index + 1 : nullptr), dims_(index ? length / 2 : 0) {
    if (index) first_ = index[0];
  }

  // Calls body(element, place, count) for runs that cover [begin, end) of the shard's elements; `place` is the global
  // index of the first, and the others follow it. No run is longer than `most`.
  template <typename Body>
  void for_each_run(int64_t begin, int64_t end, int64_t most, Body&& body) const {
    while (begin < end) {
      int64_t rest = begin, place = first_, run = end - begin;
      for (size_t d = dims_; d-- > 0;) {
        const int64_t extent = box_[2 * d], stride = box_[2 * d + 1], digit = rest % extent;
        if (d + 1 == dims_) run = std::min(run, stride == 1 ? extent - digit : 1);
        place += digit * stride;
        rest /= extent;
      }
      if (dims_ == 0) place += begin;
      run = std::min(run, most);
      body(begin, place, run);
      begin += run;
    }
  }

 private:
  const int64_t* box_;
  size_t dims_;
  int64_t first_ = 0;
};

// The operands that say which run it is, and which elements are here.
struct Draw {
  size_t counter;
  uint64_t key;
  size_t index_length;

  Draw(const PrepareContext& context, size_t counter_operand)
      : counter(counter_operand),
        key(static_cast<uint64_t>(context.node.get_int(random::kKey, 0))),
        index_length(context.has_input(counter + 1) ? context.inputs[counter + 1].count() : 0) {
    require_scalar(context, counter, "the counter", DType::int64);
    if (context.has_input(counter + 1) && index_length % 2 == 0)
      fail("kernel", "{}: its index has {} numbers; it has one, and two for each dimension", context.node.label(),
           index_length);
  }

  random::Stream stream(const KernelArgs& args) const {
    const bool given = counter < args.inputs.size() && args.inputs[counter];
    return {key, given ? static_cast<uint64_t>(*args.in<int64_t>(counter)) : 0};
  }
  Places places(const KernelArgs& args) const {
    return {index_length ? args.in<int64_t>(counter + 1) : nullptr, index_length};
  }
};

// --- Dropout

double ratio_of(DType dtype, const void* element) {
  switch (dtype) {
    case DType::float64:
      return *static_cast<const double*>(element);
    case DType::float16:
      return static_cast<float>(*static_cast<const Float16*>(element));
    case DType::bfloat16:
      return static_cast<float>(*static_cast<const BFloat16*>(element));
    default:
      return *static_cast<const float*>(element);
  }
}

/// An element is dropped if the fraction of its word is below the ratio; others are divided by 1 - ratio.
std::unique_ptr<Kernel> prepare_keyed_dropout(const PrepareContext& context) {
  const DType ratio_type = context.has_input(1) ? context.inputs[1].dtype : DType::undefined;
  if (context.has_input(1)) {
    if (!is_float(ratio_type) || bits_of(ratio_type) < 16) fail_dtype(context.node, ratio_type);
    require_scalar(context, 1, "the ratio", ratio_type);
  }
  require_scalar(context, 2, "training_mode", DType::boolean);
  const Draw draw(context, 3);
  const bool has_flag = context.has_input(2), wants_result = context.has_output(0), wants_mask = context.has_output(1);
  const int64_t count = context.inputs[0].count();
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=, threads = context.threads](const KernelArgs& args) {
      using C = Compute<T>;
      const T* in = args.in<T>(0);
      T* out = wants_result ? args.out<T>(0) : nullptr;
      bool* mask = wants_mask ? args.out<bool>(1) : nullptr;
      if (has_flag && !*args.in<bool>(2)) {
        if (out && out != in) std::memcpy(out, in, count * sizeof(T));
        if (mask) std::fill_n(mask, count, true);
        return;
      }
      const double ratio = ratio_type == DType::undefined ? 0.5 : ratio_of(ratio_type, args.inputs[1]);
      const C scale = static_cast<C>(1 / (1 - ratio));
      const random::Stream stream = draw.stream(args);
      const Places places = draw.places(args);
      for_ranges(count, 4 * count, threads, [&](int64_t begin, int64_t end) {
        std::array<uint32_t, kChunk> words;
        places.for_each_run(begin, end, kChunk, [&](int64_t element, int64_t place, int64_t n) {
          stream.words(static_cast<uint64_t>(place), n, words.data());
          for (int64_t i = 0; i < n; ++i) {
            const bool kept = random::fraction(words[i], 24) >= ratio;
            if (out) out[element + i] = kept ? store<T>(load(in[element + i]) * scale) : T();
            if (mask) mask[element + i] = kept;
          }
        });
      });
    });
  });
}

// --- RandomUniform, RandomNormal

// low + (high - low) · u, where u has as many bits as the type's fractions; float64 takes two words.
struct Uniform {
  float low, high;

  explicit Uniform(const Node& node) : low(node.get_float("low", 0)), high(node.get_float("high", 1)) {}

  template <typename T>
  static constexpr int words = std::is_same_v<T, double> ? 2 : 1;

  template <typename T>
  T operator()(const uint32_t* word) const {
    using C = Compute<T>;
    const C from = static_cast<C>(low), width = static_cast<C>(high) - from;
    if constexpr (std::is_same_v<T, double>) {
      return from + width * random::fraction(word[0], word[1], 53);
    } else {
      constexpr int digits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, Float16> ? 11 : 8;
      return store<T>(from + width * static_cast<C>(random::fraction(word[0], digits)));
    }
  }
};

// mean + scale · z, computed in float64 and rounded once (for 16-bit floats from float32).
struct Normal {
  float mean, scale;

  explicit Normal(const Node& node) : mean(node.get_float("mean", 0)), scale(node.get_float("scale", 1)) {}

  template <typename T>
  static constexpr int words = std::is_same_v<T, double> ? 4 : 2;

  template <typename T>
  T operator()(const uint32_t* word) const {
    double z = 0;
    if constexpr (std::is_same_v<T, double>)
      z = random::normal(random::fraction(word[0], word[1], 53) + 0x1p-53, random::fraction(word[2], word[3], 53));
    else
      z = random::normal(random::fraction(word[0], 32) + 0x1p-32, random::fraction(word[1], 32));
    return store<T>(static_cast<Compute<T>>(mean + scale * z));
  }
};

template <typename Distribution>
std::unique_ptr<Kernel> prepare_filling(const PrepareContext& context) {
  const Draw draw(context, 1);
  return dispatch(FloatTypes(), context.node, context.outputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=, distribution = Distribution(context.node), count = context.outputs[0].count(),
                        threads = context.threads](const KernelArgs& args) {
      constexpr int64_t kWords = Distribution::template words<T>;
      T* out = args.out<T>();
      const random::Stream stream = draw.stream(args);
      const Places places = draw.places(args);
      for_ranges(count, 8 * kWords * count, threads, [&](int64_t begin, int64_t end) {
        std::array<uint32_t, kChunk> words;
        places.for_each_run(begin, end, kChunk / kWords, [&](int64_t element, int64_t place, int64_t n) {
          stream.words(static_cast<uint64_t>(place) * kWords, n * kWords, words.data());
          for (int64_t i = 0; i < n; ++i) out[element + i] = distribution.template operator()<T>(&words[i * kWords]);
        });
      });
    });
  });
}

}  // namespace

std::vector<KernelEntry> random_kernels() {
  return {{"Dropout", "tessera", prepare_keyed_dropout, {0}},
          {"RandomUniform", "tessera", prepare_filling<Uniform>, {}},
          {"RandomNormal", "tessera", prepare_filling<Normal>, {}}};
}

}  // namespace tessera::kernels
