#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/elementwise/narrow.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/quantized/quantize_row.h"
#include "tessera/kernels/cpu/reduce/loops.h"
#include "tessera/kernels/registry.h"

// QuantizeLinear and DequantizeLinear: y = round (x / scale) + zero point, and back; DynamicQuantizeLinear. Results of
// 4 and 2 bits are written a byte at a time.
namespace tessera::kernels {
namespace {

/// Which scale belongs to an element: one for all, one for each index of a dimension, or one for each block along it.
class ScalePlaces {
 public:
  explicit ScalePlaces(const PrepareContext& context) {
    const TensorDesc &x = context.inputs[0], &scale = context.inputs[1];
    const int64_t count = scale.count();
    if (count == 1 && scale.rank() <= 1) return;
    const AxisView view(x.dims, resolve_axis(context.node, context.node.get_int("axis", 1), x.rank()));
    extent_ = view.extent;
    inner_ = view.inner;
    is_one_ = false;
    per_block_ = scale.rank() == x.rank() && context.node.get_int("block_size", 0) > 0;
    block_ = per_block_ ? context.node.get_int("block_size", 1) : 1;
    blocks_ = (extent_ + block_ - 1) / block_;
    if (count != (per_block_ ? view.outer * blocks_ * inner_ : extent_))
      fail("kernel", "{}: its scales do not fit its elements", context.node.label());
  }

  /// Elements that lie one after the other: all have the scale at `place`, or each has the next one, too.
  struct Run {
    int64_t place = 0, count = 0;
    bool is_one = true;
  };
  /// The run that begins at an element, of at most `most`.
  Run run_at(int64_t element, int64_t most) const {
    if (is_one_) return {0, most, true};
    const int64_t within = element % inner_, along = element / inner_ % extent_;
    if (!per_block_) {
      if (inner_ == 1) return {along, std::min(most, extent_ - along), false};
      return {along, std::min(most, inner_ - within), true};
    }
    const int64_t place = (element / inner_ / extent_ * blocks_ + along / block_) * inner_ + within;
    if (inner_ == 1) return {place, std::min({most, block_ - along % block_, extent_ - along}), true};
    return {place, std::min(most, inner_ - within), false};
  }

 private:
  bool is_one_ = true, per_block_ = false;
  int64_t extent_ = 1, inner_ = 1, block_ = 1, blocks_ = 1;
};

/// So many elements are read as doubles, computed and written at a time, so that the loops between need not know their
/// type; in whole bytes, also of narrow codes.
constexpr int64_t kCodesAtOnce = 256;

/// Reads numbers of a type as doubles.
class NumberReader {
 public:
  NumberReader(const Node& node, const TensorDesc& desc) {
    if (is_narrow_storage(desc.dtype))
      read_ = [reader = NarrowReader(desc.dtype)](const void* in, int64_t begin, int64_t count, double* to) {
        for (int64_t i = 0; i < count; ++i) to[i] = reader.at(static_cast<const uint8_t*>(in), begin + i);
      };
    else
      read_ = dispatch(NumberTypes(), node, desc.dtype, []<typename T>() -> Read { return read_block<T>; });
  }
  void read(const void* in, int64_t begin, int64_t count, double* to) const { read_(in, begin, count, to); }

 private:
  using Read = std::function<void(const void* in, int64_t begin, int64_t count, double* to)>;

  template <typename T>
  static void read_block(const void* in, int64_t begin, int64_t count, double* to) {
    const T* from = static_cast<const T*>(in) + begin;
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(load(from[i]));
  }

  Read read_;
};

/// The scales and zero points of a node's elements.
class Scales {
 public:
  explicit Scales(const PrepareContext& context)
      : places_(context),
        scales_(context.node, context.inputs[1]),
        has_zero_(context.has_input(2)),
        zeros_(context.node, context.inputs[has_zero_ ? 2 : 1]) {}

  /// Calls visit(k, scale, zero point) for the elements [begin, begin + count), k from 0; count <= kCodesAtOnce.
  template <typename Visit>
  void for_block(const KernelArgs& args, int64_t begin, int64_t count, const Visit& visit) const {
    std::array<double, kCodesAtOnce> scales, zeros;
    for (int64_t k = 0; k < count;) {
      const ScalePlaces::Run run = places_.run_at(begin + k, count - k);
      const int64_t read = run.is_one ? 1 : run.count, step = run.is_one ? 0 : 1;
      scales_.read(args.inputs[1], run.place, read, scales.data());
      if (has_zero_)
        zeros_.read(args.inputs[2], run.place, read, zeros.data());
      else
        std::fill_n(zeros.data(), read, 0.0);
      for (int64_t i = 0; i < run.count; ++i) visit(k + i, scales[i * step], zeros[i * step]);
      k += run.count;
    }
  }

 private:
  ScalePlaces places_;
  NumberReader scales_;
  bool has_zero_;
  NumberReader zeros_;
};

/// Calls body(begin, count) for blocks of at most kCodesAtOnce of `count` elements.
template <typename Body>
void for_blocks(int64_t count, int threads, const Body& body) {
  for_ranges((count + kCodesAtOnce - 1) / kCodesAtOnce, count, threads, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) body(b * kCodesAtOnce, std::min(kCodesAtOnce, count - b * kCodesAtOnce));
  });
}

void require_scale(const PrepareContext& context) {
  const DType scale = context.inputs[1].dtype;
  if (!is_float(scale) && scale != DType::int32) fail_dtype(context.node, scale);
  const DType zero = context.has_input(2) ? context.inputs[2].dtype : DType::uint8;
  if (zero == DType::int64 || zero == DType::uint64 || zero == DType::uint32 || zero == DType::boolean)
    fail_dtype(context.node, zero);
  if (context.has_input(2) && context.inputs[2].count() != context.inputs[1].count())
    fail("kernel", "{}: it has {} zero points for {} scales", context.node.label(), context.inputs[2].count(),
         context.inputs[1].count());
}

bool is_bytes(DType dtype) {
  return dtype == DType::uint8 || dtype == DType::int8;
}

/// Whether float32 and bytes with one float32 scale meet: `wide` is the type of the floats, `bytes` that of the bytes.
bool is_common(const PrepareContext& context, DType wide, DType bytes) {
  return wide == DType::float32 && is_bytes(bytes) && context.inputs[1].dtype == DType::float32 &&
         context.inputs[1].count() == 1;
}

/// Calls row(begin, end, scale, zero point) on ranges of the elements.
template <typename Row>
std::unique_ptr<Kernel> with_one_scale(const PrepareContext& context, DType bytes, Row row) {
  return make_kernel([=, count = context.outputs[0].count(), has_zero = context.has_input(2),
                      threads = context.threads](const KernelArgs& args) {
    const float scale = *args.in<float>(1);
    const int zero = has_zero ? byte_at(bytes, args.inputs[2], 0) : 0;
    for_ranges(count, count, threads, [&](int64_t begin, int64_t end) { row(args, begin, end, scale, zero); });
  });
}

std::unique_ptr<Kernel> dequantize_bytes(const PrepareContext& context) {
  const DType from = context.inputs[0].dtype;
  return with_one_scale(context, from, [=](const KernelArgs& args, int64_t begin, int64_t end, float scale, int zero) {
    dequantize_row(from, args.in<std::byte>(0) + begin, scale, zero, args.out<float>() + begin, end - begin);
  });
}

std::unique_ptr<Kernel> quantize_to_bytes(const PrepareContext& context) {
  const DType to = context.outputs[0].dtype;
  return with_one_scale(context, to, [=](const KernelArgs& args, int64_t begin, int64_t end, float scale, int zero) {
    quantize_row(to, args.in<float>(0) + begin, scale, zero, args.out<std::byte>() + begin, end - begin);
  });
}

template <typename T>
void write_floats(const double* from, void* out, int64_t begin, int64_t count) {
  T* to = static_cast<T*>(out) + begin;
  for (int64_t k = 0; k < count; ++k) to[k] = store<T>(static_cast<Compute<T>>(from[k]));
}

std::unique_ptr<Kernel> prepare_dequantize(const PrepareContext& context) {
  require_scale(context);
  if (is_common(context, context.outputs[0].dtype, context.inputs[0].dtype)) return dequantize_bytes(context);
  const auto write =
      dispatch(FloatTypes(), context.node, context.outputs[0].dtype, []<typename To>() { return &write_floats<To>; });
  return make_kernel([write, codes = NumberReader(context.node, context.inputs[0]), scales = Scales(context),
                      count = context.outputs[0].count(), threads = context.threads](const KernelArgs& args) {
    for_blocks(count, threads, [&](int64_t begin, int64_t n) {
      std::array<double, kCodesAtOnce> x;
      codes.read(args.inputs[0], begin, n, x.data());
      scales.for_block(args, begin, n, [&](int64_t k, double scale, double zero) { x[k] = (x[k] - zero) * scale; });
      write(x.data(), args.outputs[0], begin, n);
    });
  });
}

/// What an element is divided in: the type that is asked for, else its own; 16-bit floats are rounded to.
double divided(double x, double scale, DType type) {
  switch (type) {
    case DType::float64:
      return x / scale;
    case DType::float16:
      return static_cast<float>(Float16(static_cast<float>(x / scale)));
    case DType::bfloat16:
      return static_cast<float>(BFloat16(static_cast<float>(x / scale)));
    default:
      return static_cast<float>(x) / static_cast<float>(scale);
  }
}

/// Writes codes from what elements become, before they are cut to the type's range.
using WriteCodes = std::function<void(const double* from, void* out, int64_t begin, int64_t count)>;

/// Codes of 4 and 2 bits, and narrow floats. Blocks begin at a byte.
WriteCodes narrow_writer(const Node& node, DType to) {
  const int bits = bits_of(to);
  const bool has_sign = to == DType::int4 || to == DType::int2;
  const double least = has_sign ? -std::ldexp(1, bits - 1) : 0, most = least + std::ldexp(1, bits) - 1;
  return [=, writer = NarrowWriter(to, node.get_int("saturate", 1) != 0)](const double* from, void* out, int64_t begin,
                                                                          int64_t count) {
    uint8_t* bytes = static_cast<uint8_t*>(out) + begin / writer.per_byte();
    for (int64_t b = 0; b * writer.per_byte() < count; ++b)
      bytes[b] = writer.byte(b, count, [&](int64_t k) {
        const double x = from[k];
        return writer.code_of(is_float(to) ? x : std::isnan(x) ? 0 : std::clamp(x, least, most));
      });
  };
}

/// Codes of whole bytes.
template <typename To>
void write_codes(const double* from, void* out, int64_t begin, int64_t count) {
  constexpr double least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
  To* to = static_cast<To*>(out) + begin;
  for (int64_t k = 0; k < count; ++k)
    to[k] = std::isnan(from[k]) ? To(0) : static_cast<To>(std::clamp(from[k], least, most));
}

WriteCodes writer_of(const PrepareContext& context) {
  const DType to = context.outputs[0].dtype;
  if (is_narrow_storage(to)) return narrow_writer(context.node, to);
  return dispatch(Types<uint8_t, int8_t, uint16_t, int16_t>(), context.node, to,
                  []<typename To>() -> WriteCodes { return write_codes<To>; });
}

std::unique_ptr<Kernel> prepare_quantize(const PrepareContext& context) {
  require_scale(context);
  const DType precision = static_cast<DType>(context.node.get_int("precision", 0));
  const DType from = context.inputs[0].dtype, to = context.outputs[0].dtype;
  if (is_common(context, from, to) && (precision == DType::undefined || precision == DType::float32))
    return quantize_to_bytes(context);
  return make_kernel([type = precision != DType::undefined ? precision : from, rounds = !is_float(to),
                      write = writer_of(context), numbers = NumberReader(context.node, context.inputs[0]),
                      scales = Scales(context), count = context.outputs[0].count(),
                      threads = context.threads](const KernelArgs& args) {
    for_blocks(count, threads, [&](int64_t begin, int64_t n) {
      std::array<double, kCodesAtOnce> x;
      numbers.read(args.inputs[0], begin, n, x.data());
      scales.for_block(args, begin, n, [&](int64_t k, double scale, double zero) {
        const double quotient = divided(x[k], scale, type);
        x[k] = (rounds ? std::nearbyint(quotient) : quotient) + zero;
      });
      write(x.data(), args.outputs[0], begin, n);
    });
  });
}

/// Widens a range by a block of elements.
template <typename T, typename C>
void widen_by_block(const T* x, int64_t n, C& least, C& most) {
  if constexpr (std::is_same_v<T, float>) {
    widen_range(x, n, least, most);
  } else {
    reduce_row<LeastOf, T, C>(x, n, 0, least);
    reduce_row<GreatestOf, T, C>(x, n, 0, most);
  }
}

/// The greatest and the smallest of all elements and 0, by several threads.
template <typename T>
std::pair<Compute<T>, Compute<T>> range_with_zero(const T* x, int64_t count, int threads) {
  using C = Compute<T>;
  constexpr int64_t kMostParts = 64;
  const int64_t part = (count / (kMostParts * reduce_block) + 1) * reduce_block;
  const int64_t parts = (count + part - 1) / part;
  std::array<C, kMostParts> greatest, smallest;
  for_ranges(parts, count, threads, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      greatest[p] = smallest[p] = 0;
      for (int64_t i = p * part; i < std::min(count, (p + 1) * part); i += reduce_block)
        widen_by_block(x + i, std::min(reduce_block, count - i), smallest[p], greatest[p]);
    }
  });
  C most = 0, least = 0;
  for (int64_t p = 0; p < parts; ++p) {
    most = GreatestOf::combine(most, greatest[p]);
    least = LeastOf::combine(least, smallest[p]);
  }
  return {most, least};
}

/// DynamicQuantizeLinear, with the roundings of the operators that it stands for (ops/library/codes.h).
std::unique_ptr<Kernel> prepare_dynamic(const PrepareContext& context) {
  const int64_t count = context.inputs[0].count();
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    return make_kernel([=, threads = context.threads](const KernelArgs& args) {
      using C = Compute<T>;
      const auto rounded = [](C value) { return load(store<T>(value)); };
      const T* x = args.in<T>(0);
      const auto [most, least] = range_with_zero(x, count, threads);
      const C range = rounded(most - least), scale = range == 0 ? C{1} : rounded(range / 255);
      const C place = std::nearbyint(rounded(0 - rounded(least / scale)));
      const auto zero = std::isnan(place) ? uint8_t{0} : static_cast<uint8_t>(std::clamp<C>(place, 0, 255));
      const auto is_wanted = [&](size_t r) { return r < args.outputs.size() && args.outputs[r]; };
      if (is_wanted(1)) *args.out<T>(1) = store<T>(scale);
      if (is_wanted(2)) *args.out<uint8_t>(2) = zero;
      std::byte* codes = args.out<std::byte>();
      for_ranges(count, count, threads, [&](int64_t begin, int64_t end) {
        if constexpr (std::is_same_v<T, float>)
          quantize_row(DType::uint8, x + begin, scale, zero, codes + begin, end - begin);
        else
          for (int64_t i = begin; i < end; ++i) {
            const C code = std::nearbyint(rounded(load(x[i]) / scale)) + zero;
            codes[i] = static_cast<std::byte>(std::isnan(code) ? 0 : std::clamp<C>(code, 0, 255));
          }
      });
    });
  });
}

}  // namespace

std::vector<KernelEntry> quantization_kernels() {
  return {
      {.op_type = "DynamicQuantizeLinear", .domain = "", .prepare = prepare_dynamic},
      {.op_type = "QuantizeLinear", .domain = "", .prepare = prepare_quantize, .elementwise = true},
      {.op_type = "DequantizeLinear", .domain = "", .prepare = prepare_dequantize, .elementwise = true},
  };
}

}  // namespace tessera::kernels
