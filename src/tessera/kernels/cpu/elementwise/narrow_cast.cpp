#include "tessera/base/saturated.h"
#include "tessera/ir/small_float.h"
#include "tessera/kernels/cpu/elementwise/elementwise.h"
#include "tessera/kernels/cpu/elementwise/narrow.h"

// Casts from and to types that kernels do not compute in: floats of 8 bits, and floats and integers of 4 and 2 bits,
// which lie packed in bytes, the first in the lowest bits.
namespace tessera::kernels {
namespace {

const SmallFloat* small_float(DType dtype) {
  switch (dtype) {
    case DType::float8e4m3fn:
      return &float8e4m3fn();
    case DType::float8e4m3fnuz:
      return &float8e4m3fnuz();
    case DType::float8e5m2:
      return &float8e5m2();
    case DType::float8e5m2fnuz:
      return &float8e5m2fnuz();
    case DType::float4e2m1:
      return &float4e2m1();
    case DType::float8e8m0:
      return &float8e8m0();
    default:
      return nullptr;
  }
}

bool is_packed_integer(DType dtype) {
  return is_integer(dtype) && bits_of(dtype) < 8;
}

}  // namespace

bool is_narrow_storage(DType dtype) {
  return small_float(dtype) || is_packed_integer(dtype);
}

NarrowReader::NarrowReader(DType dtype) : bits_(bits_of(dtype)), per_byte_(8 / bits_) {
  const SmallFloat* format = small_float(dtype);
  const int codes = 1 << bits_;
  const bool has_sign = dtype == DType::int4 || dtype == DType::int2;
  values_.resize(static_cast<size_t>(codes));
  for (int code = 0; code < codes; ++code)
    values_[static_cast<size_t>(code)] = format                          ? format->decode(static_cast<uint8_t>(code))
                                         : has_sign && 2 * code >= codes ? static_cast<float>(code - codes)
                                                                         : static_cast<float>(code);
}

NarrowWriter::NarrowWriter(DType dtype, bool saturate, std::string_view round_mode)
    : format_(small_float(dtype)),
      bits_(bits_of(dtype)),
      per_byte_(8 / bits_),
      saturate_(saturate),
      toward_(dtype == DType::float8e8m0 && round_mode != "nearest"),
      up_(round_mode != "down") {}

uint8_t NarrowWriter::code_of(double value) const {
  if (format_) return toward_ ? format_->encode_toward(value, up_, saturate_) : format_->encode(value, saturate_);
  return code_of(saturated<int64_t>(value));
}

uint8_t NarrowWriter::code_of(int64_t value) const {
  return format_ ? code_of(static_cast<double>(value)) : static_cast<uint8_t>(value) & mask();
}

namespace {

// Calls make.operator()<Read>() with a function object that reads element i of an operand as a double or an int64.
template <typename Make>
std::unique_ptr<Kernel> with_reader(const PrepareContext& context, DType from, Make make) {
  if (is_narrow_storage(from)) {
    return make([reader = NarrowReader(from)](const void* in, int64_t i) {
      return static_cast<double>(reader.at(static_cast<const uint8_t*>(in), i));
    });
  }
  return dispatch(AllTypes(), context.node, from, [&]<typename From>() {
    return make([](const void* in, int64_t i) {
      const auto value = load(static_cast<const From*>(in)[i]);
      if constexpr (std::is_floating_point_v<decltype(value)>)
        return static_cast<double>(value);
      else
        return static_cast<int64_t>(value);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> prepare_narrow_cast(const PrepareContext& context) {
  const DType from = context.inputs[0].dtype, to = context.outputs[0].dtype;
  const int64_t count = context.outputs[0].count();
  const int threads = context.threads;
  if (is_narrow_storage(to)) {
    const NarrowWriter writer(to, context.node.get_int("saturate", 1) != 0,
                              context.node.get_string("round_mode", "up"));
    return with_reader(context, from, [&](auto read) {
      return make_kernel([=](const KernelArgs& args) {
        const void* in = args.inputs[0];
        uint8_t* out = args.out<uint8_t>();
        const int64_t bytes = (count + writer.per_byte() - 1) / writer.per_byte();
        for_ranges(bytes, bytes, threads, [&](int64_t begin, int64_t end) {
          for (int64_t b = begin; b < end; ++b)
            out[b] = writer.byte(b, count, [&](int64_t i) { return writer.code_of(read(in, i)); });
        });
      });
    });
  }
  return dispatch(AllTypes(), context.node, to, [&]<typename To>() -> std::unique_ptr<Kernel> {
    return make_kernel([=, reader = NarrowReader(from)](const KernelArgs& args) {
      const uint8_t* in = args.in<uint8_t>(0);
      To* out = args.out<To>();
      for_ranges(count, count, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const float value = reader.at(in, i);
          if constexpr (std::is_same_v<To, bool>)
            out[i] = value != 0;
          else if constexpr (std::is_integral_v<To>)
            out[i] = saturated<To>(value);
          else
            out[i] = static_cast<To>(value);
        }
      });
    });
  });
}

}  // namespace tessera::kernels
