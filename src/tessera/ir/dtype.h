#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {
inline namespace v1 {

/// Element types; values are those of ONNX's TensorProto.DataType.
enum class DType : int32_t {
  undefined = 0,
  float32 = 1,
  uint8 = 2,
  int8 = 3,
  uint16 = 4,
  int16 = 5,
  int32 = 6,
  int64 = 7,
  string = 8,
  boolean = 9,
  float16 = 10,
  float64 = 11,
  uint32 = 12,
  uint64 = 13,
  complex64 = 14,
  complex128 = 15,
  bfloat16 = 16,
  float8e4m3fn = 17,
  float8e4m3fnuz = 18,
  float8e5m2 = 19,
  float8e5m2fnuz = 20,
  uint4 = 21,
  int4 = 22,
  float4e2m1 = 23,
  float8e8m0 = 24,
  uint2 = 25,
  int2 = 26,
  float6e2m3 = 27,
  float6e3m2 = 28,
};

/// Bits of one element (4 for int4, 1 byte = 8 for bool); 0 for string and undefined.
int bits_of(DType dtype);

/// The fewest elements that fill whole bytes: 2 of int4, 4 of float6e2m3, 1 of what has whole bytes itself.
int64_t elements_of_whole_bytes(DType dtype);

/// Bytes that `count` packed elements take, rounded up to whole bytes. A user error if no memory holds them.
size_t bytes_of(DType dtype, int64_t count);

/// "float32", "bfloat16", "bool", ... ; "undefined" for an unknown type.
std::string_view name_of(DType dtype);

/// The type of that name (ONNX text names: "float", "double", "bool", "bfloat16", ... are accepted too); undefined if
/// none.
DType dtype_named(std::string_view name);

bool is_float(DType dtype);    ///< float64/32/16, bfloat16 and the 8-, 6- and 4-bit floats
bool is_integer(DType dtype);  ///< signed and unsigned integers, not bool

}  // namespace v1
}  // namespace tessera
