#include "tessera/ir/dtype.h"

#include <array>
#include <numeric>

#include "tessera/base/checked.h"

namespace tessera {
inline namespace v1 {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::string_view onnx_name;
  int bits;
};

constexpr std::array kRows = {
    Row{DType::float32, "float32", "float", 32},
    Row{DType::uint8, "uint8", "uint8", 8},
    Row{DType::int8, "int8", "int8", 8},
    Row{DType::uint16, "uint16", "uint16", 16},
    Row{DType::int16, "int16", "int16", 16},
    Row{DType::int32, "int32", "int32", 32},
    Row{DType::int64, "int64", "int64", 64},
    Row{DType::string, "string", "string", 0},
    Row{DType::boolean, "bool", "bool", 8},
    Row{DType::float16, "float16", "float16", 16},
    Row{DType::float64, "float64", "double", 64},
    Row{DType::uint32, "uint32", "uint32", 32},
    Row{DType::uint64, "uint64", "uint64", 64},
    Row{DType::complex64, "complex64", "complex64", 64},
    Row{DType::complex128, "complex128", "complex128", 128},
    Row{DType::bfloat16, "bfloat16", "bfloat16", 16},
    Row{DType::float8e4m3fn, "float8e4m3fn", "float8e4m3fn", 8},
    Row{DType::float8e4m3fnuz, "float8e4m3fnuz", "float8e4m3fnuz", 8},
    Row{DType::float8e5m2, "float8e5m2", "float8e5m2", 8},
    Row{DType::float8e5m2fnuz, "float8e5m2fnuz", "float8e5m2fnuz", 8},
    Row{DType::uint4, "uint4", "uint4", 4},
    Row{DType::int4, "int4", "int4", 4},
    Row{DType::float4e2m1, "float4e2m1", "float4e2m1", 4},
    Row{DType::float8e8m0, "float8e8m0", "float8e8m0", 8},
    Row{DType::uint2, "uint2", "uint2", 2},
    Row{DType::int2, "int2", "int2", 2},
    Row{DType::float6e2m3, "float6e2m3", "float6e2m3", 6},
    Row{DType::float6e3m2, "float6e3m2", "float6e3m2", 6},
};

const Row* find(DType dtype) {
  for (const Row& row : kRows)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

}  // namespace

int bits_of(DType dtype) {
  const Row* row = find(dtype);
  return row ? row->bits : 0;
}

int64_t elements_of_whole_bytes(DType dtype) {
  return 8 / std::gcd(bits_of(dtype), 8);
}

size_t bytes_of(DType dtype, int64_t count) {
  const size_t bits = static_cast<size_t>(bits_of(dtype)), elements = static_cast<size_t>(count);
  if (bits > 0 && elements > kMostBytes / bits * 8)
    fail("memory", "{} elements of type {} are more than any memory holds; give smaller sizes", count, name_of(dtype));
  return (elements * bits + 7) / 8;
}

std::string_view name_of(DType dtype) {
  const Row* row = find(dtype);
  return row ? row->name : "undefined";
}

DType dtype_named(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name || row.onnx_name == name) return row.dtype;
  return DType::undefined;
}

bool is_float(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::float64:
    case DType::float16:
    case DType::bfloat16:
    case DType::float8e4m3fn:
    case DType::float8e4m3fnuz:
    case DType::float8e5m2:
    case DType::float8e5m2fnuz:
    case DType::float8e8m0:
    case DType::float4e2m1:
    case DType::float6e2m3:
    case DType::float6e3m2:
      return true;
    default:
      return false;
  }
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::uint8:
    case DType::int8:
    case DType::uint16:
    case DType::int16:
    case DType::int32:
    case DType::int64:
    case DType::uint32:
    case DType::uint64:
    case DType::uint4:
    case DType::int4:
    case DType::uint2:
    case DType::int2:
      return true;
    default:
      return false;
  }
}

}  // namespace v1
}  // namespace tessera
