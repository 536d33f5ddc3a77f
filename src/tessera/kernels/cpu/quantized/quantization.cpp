#include <algorithm>
#include <array>
#include <cmath>
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
struct ScalePlaces {
  int64_t count = 1, extent = 1, inner = 1, block = 1, blocks = 1;
  bool per_block = false;

  explicit ScalePlaces(const PrepareContext& context) {
    const TensorDesc &x = context.inputs[0], &scale = context.inputs[1];
    count = scale.count();
    if (count == 1 && scale.rank() <= 1) return;
    const AxisView view(x.dims, resolve_axis(context.node, context.node.get_int("axis", 1), x.rank()));
    extent = view.extent;
    inner = view.inner;
    per_block = scale.rank() == x.rank() && context.node.get_int("block_size", 0) > 0;
    if (per_block) block = context.node.get_int("block_size", 1);
    blocks = (extent + block - 1) / block;
    require(context.node, count == (per_block ? view.outer * blocks * inner : extent));
  }
  int64_t at(int64_t element) const {
    if (count == 1) return 0;
    const int64_t along = element / inner % extent;
    if (!per_block) return along;
    return (element / inner / extent * blocks + along / block) * inner + element % inner;
  }

 private:
  static void require(const Node& node, bool holds) {
    if (!holds) fail("kernel", "{}: its scales do not fit its elements", node.label());
  }
};

using StoredIntegers = decltype(IntegerTypes());

// Calls make.operator()(read) with a function object that reads element i of an operand as a double.
template <typename Make>
std::unique_ptr<Kernel> with_numbers(const PrepareContext& context, size_t operand, Make make) {
  const TensorDesc& desc = context.inputs[operand];
  if (is_narrow_storage(desc.dtype))
    return make([reader = NarrowReader(desc.dtype)](const void* in, int64_t i) {
      return static_cast<double>(reader.at(static_cast<const uint8_t*>(in), i));
    });
  return dispatch(NumberTypes(), context.node, desc.dtype, [&]<typename T>() {
    return make([](const void* in, int64_t i) { return static_cast<double>(load(static_cast<const T*>(in)[i])); });
  });
}

/// A small vector of numbers of any type, read where it is wanted.
struct Numbers {
  DType dtype;
  std::shared_ptr<const NarrowReader> reader;

  explicit Numbers(const TensorDesc& desc) : dtype(desc.dtype) {
    if (is_narrow_storage(dtype)) reader = std::make_shared<NarrowReader>(dtype);
  }
  double at(const void* in, int64_t i) const {
    if (reader) return reader->at(static_cast<const uint8_t*>(in), i);
    switch (dtype) {
      case DType::float32:
        return static_cast<const float*>(in)[i];
      case DType::float64:
        return static_cast<const double*>(in)[i];
      case DType::float16:
        return static_cast<float>(static_cast<const Float16*>(in)[i]);
      case DType::bfloat16:
        return static_cast<float>(static_cast<const BFloat16*>(in)[i]);
      case DType::uint8:
        return static_cast<const uint8_t*>(in)[i];
      case DType::int8:
        return static_cast<const int8_t*>(in)[i];
      case DType::uint16:
        return static_cast<const uint16_t*>(in)[i];
      case DType::int16:
        return static_cast<const int16_t*>(in)[i];
      case DType::int32:
        return static_cast<const int32_t*>(in)[i];
      default:
        return 0;
    }
  }
};

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

std::unique_ptr<Kernel> prepare_dequantize(const PrepareContext& context) {
  require_scale(context);
  if (is_common(context, context.outputs[0].dtype, context.inputs[0].dtype)) return dequantize_bytes(context);
  const ScalePlaces places(context);
  const Numbers scales(context.inputs[1]);
  const bool has_zero = context.has_input(2);
  const Numbers zeros(context.inputs[has_zero ? 2 : 1]);
  const int64_t count = context.outputs[0].count();
  return dispatch(FloatTypes(), context.node, context.outputs[0].dtype, [&]<typename To>() {
    return with_numbers(context, 0, [&](auto read) {
      return make_kernel([=, threads = context.threads](const KernelArgs& args) {
        To* out = args.out<To>();
        for_ranges(count, count, threads, [&](int64_t begin, int64_t end) {
          int64_t known = -1;
          double scale = 1, zero = 0;
          for (int64_t i = begin; i < end; ++i) {
            if (const int64_t place = places.at(i); place != known) {
              known = place;
              scale = scales.at(args.inputs[1], place);
              zero = has_zero ? zeros.at(args.inputs[2], place) : 0;
            }
            out[i] = store<To>(static_cast<Compute<To>>((read(args.inputs[0], i) - zero) * scale));
          }
        });
      });
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

/// Codes of 4 and 2 bits, and narrow floats. number(args, i): what element i becomes, before it is cut to the range.
template <typename Number>
std::unique_ptr<Kernel> quantize_to_narrow(const PrepareContext& context, DType to, Number number) {
  const int64_t count = context.outputs[0].count();
  const NarrowWriter writer(to, context.node.get_int("saturate", 1) != 0);
  const int bits = bits_of(to);
  const bool has_sign = to == DType::int4 || to == DType::int2;
  const double least = has_sign ? -std::ldexp(1, bits - 1) : 0, most = least + std::ldexp(1, bits) - 1;
  return make_kernel([=, threads = context.threads](const KernelArgs& args) {
    const int64_t bytes = (count + writer.per_byte() - 1) / writer.per_byte();
    uint8_t* out = args.out<uint8_t>();
    for_ranges(bytes, count, threads, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        out[b] = writer.byte(b, count, [&](int64_t i) {
          const double x = number(args, i);
          return writer.code_of(is_float(to) ? x : std::isnan(x) ? 0 : std::clamp(x, least, most));
        });
    });
  });
}

/// Codes of whole bytes.
template <typename To, typename Number>
std::unique_ptr<Kernel> quantize_to(const PrepareContext& context, Number number) {
  const int64_t count = context.outputs[0].count();
  return make_kernel([=, threads = context.threads](const KernelArgs& args) {
    To* out = args.out<To>();
    for_ranges(count, count, threads, [&](int64_t begin, int64_t end) {
      constexpr double least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
      for (int64_t i = begin; i < end; ++i) {
        const double x = number(args, i);
        out[i] = std::isnan(x) ? To(0) : static_cast<To>(std::clamp(x, least, most));
      }
    });
  });
}

/// read(operand, i): element i as a double.
template <typename Read>
std::unique_ptr<Kernel> quantize_elements(const PrepareContext& context, Read read) {
  const ScalePlaces places(context);
  const Numbers scales(context.inputs[1]);
  const bool has_zero = context.has_input(2);
  const Numbers zeros(context.inputs[has_zero ? 2 : 1]);
  const DType to = context.outputs[0].dtype, stated = static_cast<DType>(context.node.get_int("precision", 0));
  const DType type = stated != DType::undefined ? stated : context.inputs[0].dtype;
  const auto number = [=](const KernelArgs& args, int64_t i) {
    const int64_t place = places.at(i);
    const double x = divided(read(args.inputs[0], i), scales.at(args.inputs[1], place), type);
    const double zero = has_zero ? zeros.at(args.inputs[2], place) : 0;
    return is_float(to) ? x + zero : std::nearbyint(x) + zero;
  };
  if (is_narrow_storage(to)) return quantize_to_narrow(context, to, number);
  return dispatch(Types<uint8_t, int8_t, uint16_t, int16_t>(), context.node, to,
                  [&]<typename To>() { return quantize_to<To>(context, number); });
}

std::unique_ptr<Kernel> prepare_quantize(const PrepareContext& context) {
  require_scale(context);
  const DType precision = static_cast<DType>(context.node.get_int("precision", 0));
  if (is_common(context, context.inputs[0].dtype, context.outputs[0].dtype) &&
      (precision == DType::undefined || precision == DType::float32))
    return quantize_to_bytes(context);
  return with_numbers(context, 0, [&](auto read) { return quantize_elements(context, read); });
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
