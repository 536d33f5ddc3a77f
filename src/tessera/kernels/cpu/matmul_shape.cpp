#include "tessera/kernels/cpu/matmul_shape.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/extents.h"

namespace tessera::kernels {
namespace {

Dims with_batch(const std::vector<MatmulBatch>& batch, bool MatmulBatch::*in, int64_t rows, int64_t columns) {
  Dims dims;
  for (const MatmulBatch& dim : batch) dims.push_back(dim.*in ? dim.extent : 1);
  dims.push_back(rows);
  dims.push_back(columns);
  return dims;
}

/// Row-major strides; the last two dimensions are column-major if the matrix is stored transposed.
Dims strides_of(const Dims& dims, bool transposed) {
  Dims strides(dims.size());
  const size_t rank = dims.size();
  strides[rank - 2] = transposed ? 1 : std::max<int64_t>(dims[rank - 1], 1);
  strides[rank - 1] = transposed ? std::max<int64_t>(dims[rank - 2], 1) : 1;
  int64_t stride = dims[rank - 2] * dims[rank - 1];
  for (size_t i = rank - 2; i-- > 0; stride *= dims[i]) strides[i] = stride;
  return strides;
}

}  // namespace

int64_t MatmulShape::batch_count() const {
  int64_t count = 1;
  for (const MatmulBatch& dim : batch) count *= dim.extent;
  return count;
}

Dims MatmulShape::a_dims() const {
  return with_batch(batch, &MatmulBatch::in_a, m, k);
}
Dims MatmulShape::b_dims() const {
  return with_batch(batch, &MatmulBatch::in_b, k, n);
}
Dims MatmulShape::c_dims() const {
  Dims dims = a_dims();
  for (size_t i = 0; i < batch.size(); ++i) dims[i] = batch[i].extent;
  dims.back() = n;
  return dims;
}
Dims MatmulShape::a_strides() const {
  return strides_of(a_dims(), a_transposed);
}
Dims MatmulShape::b_strides() const {
  return strides_of(b_dims(), b_transposed);
}

MatmulShape matmul_shape(const Dims& a_dims, const Dims& b_dims, std::string_view label) {
  if (a_dims.empty() || b_dims.empty())
    fail("kernel", "{}: an operand is a scalar; both need at least one dimension", label);
  Dims a = a_dims, b = b_dims;
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  MatmulShape shape;
  shape.m = a[a.size() - 2];
  shape.k = a.back();
  shape.n = b.back();
  const size_t rank = std::max(a.size(), b.size());
  a.insert(a.begin(), rank - a.size(), 1);
  b.insert(b.begin(), rank - b.size(), 1);
  bool fits = b[rank - 2] == shape.k;
  for (size_t i = 0; i + 2 < rank; ++i) {
    fits = fits && (a[i] == b[i] || a[i] == 1 || b[i] == 1);
    if (a[i] == 1 && b[i] == 1) continue;
    const MatmulBatch dim{a[i] == 1 ? b[i] : a[i], a[i] != 1, b[i] != 1};
    auto& batch = shape.batch;
    if (!batch.empty() && batch.back().in_a == dim.in_a && batch.back().in_b == dim.in_b)
      batch.back().extent *= dim.extent;
    else
      batch.push_back(dim);
  }
  if (!fits)
    fail("kernel",
         "{}: operands {} and {} cannot be multiplied; the first one's last extent must equal the second "
         "one's last but one, and batch extents must be equal or 1",
         label, text_of(a_dims), text_of(b_dims));
  if (!shape.batch.empty() && !shape.batch.back().in_b) {
    shape.m *= shape.batch.back().extent;
    shape.batch.pop_back();
  }
  return shape;
}

MatmulShape gemm_shape(const Dims& a, const Dims& b, bool a_transposed, bool b_transposed, std::string_view label) {
  if (a.size() != 2 || b.size() != 2)
    fail("kernel", "{}: operands have ranks {} and {}; Gemm multiplies matrices", label, a.size(), b.size());
  MatmulShape shape;
  shape.a_transposed = a_transposed;
  shape.b_transposed = b_transposed;
  shape.m = a[a_transposed ? 1 : 0];
  shape.k = a[a_transposed ? 0 : 1];
  shape.n = b[b_transposed ? 0 : 1];
  if (b[b_transposed ? 1 : 0] != shape.k)
    fail("kernel", "{}: operands {} and {} cannot be multiplied{}; their inner extents differ", label, text_of(a),
         text_of(b), a_transposed || b_transposed ? " as transposed" : "");
  return shape;
}

}  // namespace tessera::kernels
