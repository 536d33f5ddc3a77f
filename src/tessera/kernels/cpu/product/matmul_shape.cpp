#include "tessera/kernels/cpu/product/matmul_shape.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/extents.h"

namespace tessera::kernels {
namespace {

Dims with_batch(const std::vector<MatmulBatch>& batch, bool MatmulBatch::*in, int64_t rows, int64_t columns) {
  Dims dims;
  for (const MatmulBatch& dim : batch) dims.push_back(dim.*in ? dim.extent : 1);
  dims.push_back(rows);
  dims.push_back(columns);
  return dims;
}

/// The product's batch dimensions, and then the rows, while they merge; strides of a, b and c.
struct BatchLoop {
  MatmulBatch dim;
  int64_t a = 0, b = 0, c = 0;
};

/// Whether `inner`, of this extent and stride, goes on where a step of `outer` leads.
bool joins(int64_t outer, int64_t inner, int64_t extent) {
  return outer == inner * extent;
}

void add_loop(std::vector<BatchLoop>& loops, const BatchLoop& inner) {
  const auto [extent, in_a, in_b] = inner.dim;
  if (!loops.empty()) {
    BatchLoop& outer = loops.back();
    if (outer.dim.in_a == in_a && outer.dim.in_b == in_b && (!in_a || joins(outer.a, inner.a, extent)) &&
        (!in_b || joins(outer.b, inner.b, extent)) && joins(outer.c, inner.c, extent)) {
      const int64_t count = outer.dim.extent * extent;
      outer = inner;
      outer.dim.extent = count;
      return;
    }
  }
  loops.push_back(inner);
}

/// Gives dimensions of extent 1 the strides that they have in dense tensors; `dims` are the batch, rows and columns.
Dims settled(const Dims& dims, Dims strides) {
  const size_t row = dims.size() - 2, column = dims.size() - 1;
  if (strides[column] == 1 || dims[column] == 1) {
    strides[column] = 1;
    if (dims[row] == 1) strides[row] = std::max<int64_t>(dims[column], 1);
  } else if (dims[row] == 1) {
    strides[row] = 1;
  }
  int64_t span = std::max(dims[row] * strides[row], dims[column] * strides[column]);
  for (size_t d = row; d-- > 0; span = std::max(span, dims[d] * strides[d]))
    if (dims[d] == 1) strides[d] = span;
  return strides;
}

void exchange_last(Dims& dims) {
  std::swap(dims[dims.size() - 2], dims[dims.size() - 1]);
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

MatmulShape MatmulShape::turned() const {
  MatmulShape shape{batch, n, m, k, b_strides, a_strides, c_strides};
  for (MatmulBatch& dim : shape.batch) std::swap(dim.in_a, dim.in_b);
  for (Dims* strides : {&shape.a_strides, &shape.b_strides, &shape.c_strides}) exchange_last(*strides);
  return shape;
}

MatmulShape matmul_shape(const View& a_view, const View& b_view, std::string_view label, const Dims& result_strides) {
  View a = a_view, b = b_view;
  if (a.dims.empty() || b.dims.empty())
    fail("kernel", "{}: an operand is a scalar; both need at least one dimension", label);
  Dims c_strides = result_strides;
  if (b.dims.size() == 1) {
    b.dims.push_back(1);
    b.strides.push_back(1);
    if (!c_strides.empty()) c_strides.push_back(1);
  }
  if (a.dims.size() == 1) {
    a.dims.insert(a.dims.begin(), 1);
    a.strides.insert(a.strides.begin(), 1);
    if (!c_strides.empty()) c_strides.insert(c_strides.end() - 1, 1);
  }
  MatmulShape shape;
  shape.m = a.dims[a.dims.size() - 2];
  shape.k = a.dims.back();
  shape.n = b.dims.back();
  const size_t rank = std::max(a.dims.size(), b.dims.size());
  for (View* view : {&a, &b}) {
    view->strides.insert(view->strides.begin(), rank - view->dims.size(), 0);
    view->dims.insert(view->dims.begin(), rank - view->dims.size(), 1);
  }
  Dims c(rank);
  bool fits = b.dims[rank - 2] == shape.k;
  for (size_t i = 0; i + 2 < rank; ++i) {
    fits = fits && (a.dims[i] == b.dims[i] || a.dims[i] == 1 || b.dims[i] == 1);
    c[i] = a.dims[i] == 1 ? b.dims[i] : a.dims[i];
  }
  if (!fits)
    fail("kernel",
         "{}: operands {} and {} cannot be multiplied; the first one's last extent must equal the second "
         "one's last but one, and batch extents must be equal or 1",
         label, text_of(a_view.dims), text_of(b_view.dims));
  c[rank - 2] = shape.m;
  c[rank - 1] = shape.n;
  if (c_strides.empty()) c_strides = dense_strides(c);
  check(c_strides.size() == rank, "a product's result has a stride per dimension");

  std::vector<BatchLoop> loops;
  for (size_t i = 0; i + 2 < rank; ++i)
    if (c[i] != 1) add_loop(loops, {{c[i], a.dims[i] != 1, b.dims[i] != 1}, a.strides[i], b.strides[i], c_strides[i]});
  int64_t a_row = a.strides[rank - 2], c_row = c_strides[rank - 2];
  if (!loops.empty() && !loops.back().dim.in_b) {
    const BatchLoop& loop = loops.back();
    if (shape.m == 1) {
      a_row = loop.a;
      c_row = loop.c;
    }
    if (shape.m == 1 || (joins(loop.a, a_row, shape.m) && joins(loop.c, c_row, shape.m))) {
      shape.m *= loop.dim.extent;
      loops.pop_back();
    }
  }
  for (const BatchLoop& loop : loops) {
    shape.batch.push_back(loop.dim);
    shape.a_strides.push_back(loop.a);
    shape.b_strides.push_back(loop.b);
    shape.c_strides.push_back(loop.c);
  }
  shape.a_strides.insert(shape.a_strides.end(), {a_row, a.strides[rank - 1]});
  shape.b_strides.insert(shape.b_strides.end(), {b.strides[rank - 2], b.strides[rank - 1]});
  shape.c_strides.insert(shape.c_strides.end(), {c_row, c_strides[rank - 1]});
  shape.a_strides = settled(shape.a_dims(), std::move(shape.a_strides));
  shape.b_strides = settled(shape.b_dims(), std::move(shape.b_strides));
  shape.c_strides = settled(shape.c_dims(), std::move(shape.c_strides));
  return shape;
}

MatmulShape gemm_shape(const View& a, const View& b, bool a_transposed, bool b_transposed, std::string_view label) {
  if (a.dims.size() != 2 || b.dims.size() != 2)
    fail("kernel", "{}: operands have ranks {} and {}; Gemm multiplies matrices", label, a.dims.size(), b.dims.size());
  const View left = permuted(a, a_transposed ? Dims{1, 0} : Dims{0, 1});
  const View right = permuted(b, b_transposed ? Dims{1, 0} : Dims{0, 1});
  if (left.dims[1] != right.dims[0])
    fail("kernel", "{}: operands {} and {} cannot be multiplied{}; their inner extents differ", label, text_of(a.dims),
         text_of(b.dims), a_transposed || b_transposed ? " as transposed" : "");
  return matmul_shape(left, right, label);
}

bool is_product_operand(const View& view) {
  // From the innermost dimension to the outermost, each steps over all that those before it cover.
  std::vector<std::pair<int64_t, int64_t>> steps;  // stride, extent
  for (size_t d = 0; d < view.dims.size(); ++d)
    if (view.dims[d] != 1) steps.emplace_back(view.strides[d], view.dims[d]);
  std::sort(steps.begin(), steps.end());
  int64_t covered = 1;
  for (const auto& [stride, extent] : steps) {
    if (stride < covered) return false;
    covered = stride * (extent - 1) + covered;
  }
  const size_t rank = view.dims.size();
  const auto is_consecutive = [&](size_t d) { return view.dims[d] == 1 || view.strides[d] == 1; };
  return rank == 0 || is_consecutive(rank - 1) || (rank >= 2 && is_consecutive(rank - 2));
}

}  // namespace tessera::kernels
