#pragma once

#include <map>
#include <memory>

#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/matrix_product.h"

namespace tessera::kernels {

/// A matrix [k, n] of 4- or 8-bit codes that lie by columns, without gaps: the codes of a column fill bytes, the first
/// of two the low half. Each block of a column's codes has a scale, and perhaps a zero point:
/// b[l, j] = (code[j, l] - zero[j, l / block]) · scale[j, l / block]; without zero points, zero is half the codes'
/// range.
struct CodedMatrix {
  int64_t k = 0, n = 0;
  int64_t block = 1;  ///< codes; it divides k, and blocks fill bytes
  int bits = 4;

  int64_t blocks() const { return k / block; }
  int64_t block_bytes() const { return block * bits / 8; }
};

/// The parts of one such matrix in memory.
struct CodedMatrixData {
  const uint8_t* codes = nullptr;  ///< [n, k · bits / 8]
  const float* scales = nullptr;   ///< [n, blocks]
  const uint8_t* zeros = nullptr;  ///< [n, blocks]; null if there are none
};

/// c[m, n] = a[m, k] · b, for matrices b that are read in place. A few rows meet codes that become floats in
/// registers; for more rows, a thread makes floats of as many columns as fit its cache. A column's sums are the same
/// beside any others.
class CodedProduct {
 public:
  CodedProduct(int64_t m, const CodedMatrix& matrix, int threads);

  size_t scratch_bytes() const { return plan_.bytes(); }
  void run(const float* a, const CodedMatrixData& b, float* c, void* scratch);

 private:
  void run_rows(const float* a, const CodedMatrixData& b, float* c, float* spread) const;
  void run_panels(const float* a, const CodedMatrixData& b, float* c, void* scratch);

  int64_t m_;
  CodedMatrix matrix_;
  int threads_;
  int64_t panel_ = 0;                                                        // columns
  std::vector<std::map<int64_t, std::unique_ptr<MatrixProduct>>> products_;  // of each thread, by columns
  std::vector<size_t> panel_at_, inner_at_;
  size_t spread_at_ = 0;
  ScratchPlan plan_;
};

}  // namespace tessera::kernels
