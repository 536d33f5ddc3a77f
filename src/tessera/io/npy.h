#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/ir/tensor.h"

namespace tessera {

/// What precedes the elements in a .npy file.
struct NpyHeader {
  DType dtype = DType::undefined;
  Dims dims;
  bool fortran_order = false;  ///< the first dimension varies fastest
  size_t size = 0;             ///< bytes from the start of the file to the elements
};

/// Reads the header of a .npy file (versions 1 to 3) from its first bytes. `what` names the array in user errors.
///
/// Little-endian floats, complex numbers, integers and bools are read; `V2` and `bfloat16`, which is how ml_dtypes'
/// arrays are written, are bfloat16.
NpyHeader parse_npy_header(std::string_view bytes, std::string_view what);

/// Of a .npy file's first bytes, so many (fewer where there are no more) say how long its header is.
constexpr size_t kNpyPrefix = 12;
/// Bytes of the header, from the start of the file to the elements.
size_t npy_header_size(std::string_view prefix, std::string_view what);
/// Bytes of the elements, which are all that follows the header: a user error unless `present` are as many.
size_t npy_element_bytes(const NpyHeader& header, size_t present, std::string_view what);
/// The tensor whose elements lie in `stored` as the header says, row-major.
Tensor row_major(const NpyHeader& header, Tensor stored);

/// The array in the bytes of a .npy file, row-major whatever order the file has.
Tensor parse_npy(std::string_view bytes, std::string_view what);

/// The header (version 1) that stands before a tensor's elements.
std::string npy_header(const Tensor& tensor, std::string_view what);

/// What numpy can hold of a tensor: bfloat16, which numpy lacks, becomes float32; everything else stays. Throws a user
/// error for strings and types below 8 bits and 8-bit floats.
Tensor as_numpy(const Tensor& tensor, std::string_view what);

Tensor read_npy(const std::filesystem::path& path);
void write_npy(const std::filesystem::path& path, const Tensor& tensor);  ///< atomic

}  // namespace tessera
