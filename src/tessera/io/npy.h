#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/ir/tensor.h"

namespace tessera {

/// The header of a .npy file, which precedes the elements.
struct NpyHeader {
  DType dtype = DType::undefined;
  Dims dims;
  bool fortran_order = false;  ///< the first dimension varies fastest
  size_t size = 0;             ///< bytes from the start of the file to the elements
};

/// Reads the header of a .npy file (versions 1 to 3) from its first bytes. `what` names the array in user errors.
///
/// Reads little-endian floats, complex numbers, integers and bools; `V2` and `bfloat16`, as which ml_dtypes writes its
/// arrays, are bfloat16.
NpyHeader parse_npy_header(std::string_view bytes, std::string_view what);

/// The first bytes of a .npy file that suffice to tell the length of its header (fewer if the file is shorter).
constexpr size_t kNpyPrefix = 12;
/// Bytes of the header, from the start of the file to the elements.
size_t npy_header_size(std::string_view prefix, std::string_view what);
/// Bytes of the elements, which are everything after the header. A user error unless `present` equals them.
size_t npy_element_bytes(const NpyHeader& header, size_t present, std::string_view what);
/// The tensor, row-major, whose elements are in `stored` in the order that the header states.
Tensor row_major(const NpyHeader& header, Tensor stored);

/// The array in the bytes of a .npy file, row-major in either order of the file.
Tensor parse_npy(std::string_view bytes, std::string_view what);

/// The header (version 1) that precedes a tensor's elements.
std::string npy_header(const Tensor& tensor, std::string_view what);

/// The tensor in a type that numpy has: bfloat16, which numpy lacks, becomes float32; other types stay. Throws a user
/// error for strings, types below 8 bits and 8-bit floats.
Tensor as_numpy(const Tensor& tensor, std::string_view what);

Tensor read_npy(const std::filesystem::path& path);
void write_npy(const std::filesystem::path& path, const Tensor& tensor);  ///< atomic

}  // namespace tessera
