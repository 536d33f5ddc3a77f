#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/random_tensors.h"
#include "tessera/base/error.h"
#include "tessera/kernels/packing.h"

namespace tessera::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Σk a[m, k] · b[k, n] of row-major matrices.
std::vector<float> product(const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
  std::vector<float> c(m * n, 0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + l] * b[l * n + j];
  return c;
}

Tensor transposed(const Tensor& matrix) {
  const int64_t rows = matrix.dims[0], columns = matrix.dims[1];
  std::vector<float> values(rows * columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) values[j * rows + i] = matrix.as<float>()[i * columns + j];
  return floats({columns, rows}, values);
}

/// Packs operand 1 as the pass does and runs the packed form; nullopt where the plain form is as good.
std::optional<Tensor> run_packed(const std::string& op_type, std::vector<Tensor> inputs, DType dtype, Dims dims,
                                 const Attributes& attributes = {}) {
  Node node;
  node.op_type = op_type;
  for (const auto& [name, value] : attributes) node.set(name, value);
  const auto layout = packed_layout(node, {inputs[1].dtype, inputs[1].dims});
  if (!layout) return std::nullopt;
  RunOptions use{.attributes = attributes, .domain = "tessera.cpu"};
  for (const Attribute& attribute : layout->use_attributes) use.attributes[attribute.name] = attribute.value;
  inputs[1] = packed_weight(*layout, {inputs[1]});
  return run_kernel_one(layout->op_type, inputs, dtype, dims, use);
}

TEST(MatMul, MultipliesMatrices) {
  const Tensor c = run_kernel_one("MatMul", {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({3, 2}, {1, 0, 0, 1, 1, 1})},
                                  DType::float32, {2, 2});
  EXPECT_THAT(values_of<float>(c), ElementsAre(4, 5, 10, 11));
}

TEST(MatMul, TakesVectorsAsRowsAndColumns) {
  const Tensor vector = floats({3}, {1, 2, 3}), matrix = floats({3, 2}, {1, 4, 2, 5, 3, 6});
  EXPECT_THAT(values_of<float>(run_kernel_one("MatMul", {vector, vector}, DType::float32, {})), ElementsAre(14));
  EXPECT_THAT(values_of<float>(run_kernel_one("MatMul", {vector, matrix}, DType::float32, {2})), ElementsAre(14, 32));
  EXPECT_THAT(values_of<float>(run_kernel_one("MatMul", {transposed(matrix), vector}, DType::float32, {2})),
              ElementsAre(14, 32));
}

TEST(MatMul, IsExactForIntegersOfAnyExtents) {
  RandomTensors random(7);
  for (auto [m, n, k] : {std::array{1, 1, 1}, {1, 64, 300}, {17, 33, 65}, {128, 96, 257}, {3, 1, 1000}}) {
    const Tensor a = random.integer_floats({m, k}), b = random.integer_floats({k, n});
    const auto expected = product(a.as<float>().data(), b.as<float>().data(), m, n, k);
    EXPECT_EQ(values_of<float>(run_kernel_one("MatMul", {a, b}, DType::float32, {m, n}, {.threads = 2})), expected)
        << m << " " << n << " " << k;
    if (auto packed = run_packed("MatMul", {a, b}, DType::float32, {m, n})) {
      EXPECT_EQ(values_of<float>(*packed), expected) << "packed " << m << " " << n << " " << k;
    }
  }
}

// Some machines widen large operands, in panels of 4096 rows, columns or terms of the sums.
TEST(MatMul, IsExactForIntegersInSixteenBitsOfAnyExtents) {
  RandomTensors random(13);
  for (auto [m, n, k] : {std::array{15, 200, 200}, {17, 130, 300}, {4099, 128, 129}, {16, 4100, 131}, {19, 129, 9001}})
    for (bool turned_a : {false, true})
      for (bool turned_b : {false, true}) {
        const Tensor a = random.integer_floats({m, k}), b = random.integer_floats({k, n});
        const auto expected = product(a.as<float>().data(), b.as<float>().data(), m, n, k);
        const auto narrow = [](const Tensor& matrix) {
          return narrowed(DType::bfloat16, matrix.dims, values_of<float>(matrix));
        };
        RunOptions options{.threads = 2};
        if (turned_a) options.views[0] = {{m, k}, {1, m}};
        if (turned_b) options.views[1] = {{k, n}, {1, k}};
        const std::vector<Tensor> operands = {narrow(turned_a ? transposed(a) : a),
                                              narrow(turned_b ? transposed(b) : b)};
        const Tensor c = run_kernel_one("MatMul", operands, DType::bfloat16, {m, n}, options);
        EXPECT_EQ(widened(c), widened(narrowed(DType::bfloat16, {m, n}, expected)))
            << m << " " << n << " " << k << (turned_a ? ", a by columns" : "") << (turned_b ? ", b by columns" : "");
      }
}

TEST(MatMul, FewRowsAreExactForIntegersInEveryStripOfAPackedWeight) {
  RandomTensors random(11);
  for (int64_t m : {1, 2, 3, 4, 5})
    for (int64_t n : {1, 15, 16, 33, 48, 64, 65, 200})
      for (int64_t k : {1, 2, 31, 32, 77}) {
        const Tensor a = random.integer_floats({m, k}), b = random.integer_floats({k, n});
        const auto expected = product(a.as<float>().data(), b.as<float>().data(), m, n, k);
        if (auto packed = run_packed("MatMul", {a, b}, DType::float32, {m, n})) {
          EXPECT_EQ(values_of<float>(*packed), expected) << m << " " << n << " " << k;
        }
        const Tensor turned = transposed(b), c = random.integer_floats({n});
        if (auto packed = run_packed("Gemm", {a, turned, c}, DType::float32, {m, n}, {{"transB", int64_t{1}}})) {
          auto sum = expected;
          for (int64_t i = 0; i < m * n; ++i) sum[i] += c.as<float>()[i % n];
          EXPECT_EQ(values_of<float>(*packed), sum) << m << " " << n << " " << k;
        }
        const Tensor narrow_a = narrowed(DType::bfloat16, {m, k}, values_of<float>(a));
        const Tensor narrow_b = narrowed(DType::bfloat16, {k, n}, values_of<float>(b));
        if (auto packed = run_packed("MatMul", {narrow_a, narrow_b}, DType::bfloat16, {m, n})) {
          EXPECT_EQ(widened(*packed), widened(narrowed(DType::bfloat16, {m, n}, expected)))
              << m << " " << n << " " << k;
        }
      }
}

TEST(MatMul, AColumnOfFewRowsHasTheSameBitsInAnyPlaceAndAmongAnyRows) {
  RandomTensors random(12);
  const int64_t k = 300, n = 150;
  const Tensor a = random.normal_floats({4, k}), b = random.normal_floats({k, n});
  auto whole = run_packed("MatMul", {a, b}, DType::float32, {4, n});
  if (!whole) GTEST_SKIP() << "this machine packs no weight";
  for (int64_t first : {0, 1, 63, 64, 100}) {
    std::vector<float> right, row(a.as<float>().begin() + 2 * k, a.as<float>().begin() + 3 * k);
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = first; j < n; ++j) right.push_back(b.as<float>()[l * n + j]);
    const auto part =
        run_packed("MatMul", {floats({1, k}, row), floats({k, n - first}, right)}, DType::float32, {1, n - first});
    for (int64_t j = first; j < n; ++j) EXPECT_EQ(part->as<float>()[j - first], whole->as<float>()[2 * n + j]) << first;
  }
}

struct BatchCase {
  Dims a, b, c;
};

TEST(MatMul, RepeatsBatchesOfExtentOne) {
  RandomTensors random(8);
  const std::vector<BatchCase> cases{
      {{2, 3, 5, 4}, {4, 6}, {2, 3, 5, 6}},
      {{5, 4}, {3, 4, 6}, {3, 5, 6}},
      {{2, 3, 5, 4}, {3, 4, 6}, {2, 3, 5, 6}},
      {{2, 1, 5, 4}, {1, 3, 4, 6}, {2, 3, 5, 6}},
      {{2, 1, 3, 5, 4}, {7, 1, 4, 6}, {2, 7, 3, 5, 6}},
      {{3, 2, 5, 4}, {3, 2, 4, 6}, {3, 2, 5, 6}},
      {{4}, {2, 4, 6}, {2, 6}},
      {{2, 5, 4}, {4}, {2, 5}},
  };
  for (const BatchCase& test : cases) {
    const Tensor a = random.integer_floats(test.a), b = random.integer_floats(test.b);
    Dims full_a = test.a, full_b = test.b, batch = test.c;
    if (full_a.size() == 1)
      full_a.insert(full_a.begin(), 1);
    else
      batch.pop_back();
    if (full_b.size() == 1)
      full_b.push_back(1);
    else
      batch.pop_back();
    const int64_t m = full_a[full_a.size() - 2], k = full_a.back(), n = full_b.back();
    std::vector<float> expected;
    for (int64_t index = 0; index < count_of(batch); ++index) {
      auto offset = [&](const Dims& dims) {  // of this batch index's matrix, counted in matrices
        int64_t rest = index, stride = 1, at = 0;
        for (size_t i = 0; i < batch.size(); ++i) {
          const int64_t extent = batch[batch.size() - 1 - i], position = rest % extent;
          rest /= extent;
          if (i + 2 >= dims.size()) continue;
          const int64_t own = dims[dims.size() - 3 - i];
          at += (own == 1 ? 0 : position) * stride;
          stride *= own;
        }
        return at;
      };
      const auto one = product(a.as<float>().data() + offset(full_a) * m * k,
                               b.as<float>().data() + offset(full_b) * k * n, m, n, k);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    EXPECT_EQ(values_of<float>(run_kernel_one("MatMul", {a, b}, DType::float32, test.c)), expected)
        << testing::PrintToString(test.a) << testing::PrintToString(test.b);
    const Tensor doubles = run_kernel_one(
        "MatMul", {converted<double>(DType::float64, a), converted<double>(DType::float64, b)}, DType::float64, test.c);
    EXPECT_EQ(values_of<double>(doubles), std::vector<double>(expected.begin(), expected.end()));
    if (test.b.size() < 2) continue;
    if (auto packed = run_packed("MatMul", {a, b}, DType::float32, test.c)) {
      EXPECT_EQ(values_of<float>(*packed), expected) << "packed " << testing::PrintToString(test.b);
    }
  }
}

/// A tensor whose dimension d is dimension order[d] of row-major memory, with room for `gap` more elements along the
/// last one there.
struct Placed {
  Tensor memory;
  View view;
};

Placed placed(const Tensor& tensor, const std::vector<int64_t>& order, int64_t gap) {
  Dims stored(order.size());
  for (size_t d = 0; d < order.size(); ++d) stored[order[d]] = tensor.dims[d];
  Dims room = stored;
  room.back() += gap;
  const View view = permuted({stored, dense_strides(room), 0}, order);
  std::vector<float> values(count_of(room), 1000);
  const View dense = View::dense(tensor.dims);
  for (int64_t i = 0; i < count_of(tensor.dims); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < order.size(); ++d) at += i / dense.strides[d] % tensor.dims[d] * view.strides[d];
    values[at] = tensor.as<float>()[i];
  }
  return {floats(room, values), view};
}

Tensor in_type(DType dtype, const Tensor& tensor) {
  if (dtype == DType::float64) return converted<double>(dtype, tensor);
  if (dtype == DType::int64) return converted<int64_t>(dtype, tensor);
  return dtype == DType::float32 ? tensor : narrowed(dtype, tensor.dims, values_of<float>(tensor));
}

std::vector<float> as_floats(const Tensor& tensor) {
  if (tensor.dtype == DType::float64) return {tensor.as<double>().begin(), tensor.as<double>().end()};
  if (tensor.dtype == DType::int64) return {tensor.as<int64_t>().begin(), tensor.as<int64_t>().end()};
  return tensor.dtype == DType::float32 ? values_of<float>(tensor) : widened(tensor);
}

struct StridedCase {
  Dims a, b, c;
  std::vector<int64_t> a_order, b_order, c_order;
  int64_t gap = 0;
};

TEST(MatMul, ReadsAndWritesMatricesByRowsAndByColumnsInAnyBatches) {
  RandomTensors random(13);
  const std::vector<StridedCase> cases{
      {{5, 7}, {7, 6}, {5, 6}, {1, 0}, {0, 1}, {0, 1}},
      {{5, 7}, {7, 6}, {5, 6}, {0, 1}, {1, 0}, {1, 0}},
      {{70, 9}, {9, 33}, {70, 33}, {1, 0}, {1, 0}, {1, 0}, 3},
      {{66, 5}, {5, 2048}, {66, 2048}, {1, 0}, {0, 1}, {0, 1}},
      {{1, 7}, {7, 6}, {1, 6}, {1, 0}, {1, 0}, {1, 0}, 2},
      {{5, 1}, {1, 6}, {5, 6}, {1, 0}, {1, 0}, {1, 0}, 2},
      {{2, 3, 5, 4}, {2, 3, 4, 6}, {2, 3, 5, 6}, {0, 2, 1, 3}, {0, 2, 3, 1}, {0, 2, 1, 3}},  // heads
      {{2, 3, 5, 4}, {2, 3, 4, 6}, {2, 3, 5, 6}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 1, 3, 2}},
      {{2, 3, 5, 4}, {2, 3, 4, 6}, {2, 3, 5, 6}, {1, 0, 2, 3}, {1, 0, 2, 3}, {1, 0, 2, 3}, 1},
      {{2, 3, 5, 4}, {3, 4, 6}, {2, 3, 5, 6}, {0, 2, 1, 3}, {0, 2, 1}, {0, 2, 1, 3}},
      {{2, 5, 4}, {4, 6}, {2, 5, 6}, {1, 0, 2}, {1, 0}, {1, 0, 2}},
      {{2, 1, 4}, {4, 6}, {2, 1, 6}, {1, 0, 2}, {1, 0}, {0, 1, 2}, 5},
      {{5, 0}, {0, 6}, {5, 6}, {1, 0}, {1, 0}, {1, 0}},
  };
  for (const StridedCase& test : cases) {
    const Tensor a = random.integer_floats(test.a), b = random.integer_floats(test.b);
    const Tensor dense = run_kernel_one("MatMul", {a, b}, DType::float32, test.c);
    const Placed left = placed(a, test.a_order, test.gap), right = placed(b, test.b_order, test.gap);
    const Placed result = placed(dense, test.c_order, 0);
    for (DType dtype : {DType::float32, DType::float64, DType::int64, DType::bfloat16, DType::float16}) {
      const RunOptions options{.threads = 2, .views = {{0, left.view}, {1, right.view}, {-1, result.view}}};
      const Tensor made =
          run_kernel_one("MatMul", {in_type(dtype, left.memory), in_type(dtype, right.memory)}, dtype, test.c, options);
      EXPECT_EQ(as_floats(made), as_floats(in_type(dtype, result.memory)))
          << name_of(dtype) << " " << testing::PrintToString(test.a) << testing::PrintToString(test.a_order)
          << testing::PrintToString(test.b) << testing::PrintToString(test.b_order);
    }
  }
}

TEST(MatMul, TakesOnlyMatricesThatLieByRowsOrByColumns) {
  const KernelEntry* entry = find_kernel("MatMul", "");
  Value weight, batch;
  weight.type.shape = {Expr(4), Expr(6)};
  batch.type.shape = {Expr(2), Expr(4), Expr(6)};
  Node by_matrix, by_batch;
  by_matrix.inputs = {nullptr, &weight};
  by_batch.inputs = {nullptr, &batch};
  const auto takes = [&](const Node& node, const View& view) { return entry->takes_strided(node, 0, view); };
  EXPECT_TRUE(takes(by_matrix, {{5, 4}, {1, 5}}));
  EXPECT_TRUE(takes(by_matrix, {{5, 4}, {9, 1}}));
  EXPECT_FALSE(takes(by_matrix, {{5, 4}, {2, 10}}));       // every second element
  EXPECT_FALSE(takes(by_matrix, {{5, 4}, {0, 1}}));        // one row again and again
  EXPECT_FALSE(takes(by_matrix, {{5, 4}, {-4, 1}}));       // backwards
  EXPECT_FALSE(takes(by_matrix, {{2, 5, 4}, {4, 8, 1}}));  // two batches of rows that are not one
  EXPECT_TRUE(takes(by_batch, {{2, 5, 4}, {4, 8, 1}}));
  // A rank may have no elements of the sum, or no rows.
  for (const Dims& dims : {Dims{2, 5, 0}, Dims{2, 0, 4}, Dims{0, 5, 4}, Dims{2, 0}, Dims{0, 4}})
    (void)takes(by_matrix, View::dense(dims));
}

TEST(MatMul, WrapsIntegersAround) {
  const Tensor c = run_kernel_one("MatMul",
                                  {Tensor::of<int32_t>(DType::int32, {1, 2}, {1 << 30, 1 << 30}),
                                   Tensor::of<int32_t>(DType::int32, {2, 1}, {1, 1})},
                                  DType::int32, {1, 1});
  EXPECT_THAT(values_of<int32_t>(c), ElementsAre(INT32_MIN));
}

TEST(MatMul, RoundsSixteenBitResultsOnceAndGivesFloat32OnRequest) {
  RandomTensors random(9);
  const int64_t m = 19, n = 40, k = 70;
  const auto a = random.integers(m * k), b = random.integers(k * n);
  const auto exact = product(a.data(), b.data(), m, n, k);
  for (DType dtype : {DType::bfloat16, DType::float16}) {
    const std::vector<Tensor> operands{narrowed(dtype, {m, k}, a), narrowed(dtype, {k, n}, b)};
    EXPECT_EQ(widened(run_kernel_one("MatMul", operands, dtype, {m, n})), widened(narrowed(dtype, {m, n}, exact)));
    const RunOptions wide{.attributes = {{"accumulate", std::string("float32")}}, .domain = "tessera"};
    EXPECT_EQ(values_of<float>(run_kernel_one("MatMul", operands, DType::float32, {m, n}, wide)), exact);
    if (auto packed = run_packed("MatMul", operands, dtype, {m, n})) {
      EXPECT_EQ(widened(*packed), widened(narrowed(dtype, {m, n}, exact))) << name_of(dtype);
    }
  }
}

TEST(MatMul, SumsNothingToZeroAndWritesNothingWhereNothingIs) {
  const Tensor none = run_kernel_one("MatMul", {floats({2, 0}, {}), floats({0, 3}, {})}, DType::float32, {2, 3});
  EXPECT_THAT(values_of<float>(none), Each(0));
  EXPECT_THAT(values_of<float>(run_kernel_one("MatMul", {floats({0, 4}, {}), RandomTensors(1).normal_floats({4, 3})},
                                              DType::float32, {0, 3})),
              IsEmpty());
}

TEST(MatMul, NamesOperandsThatDoNotFit) {
  EXPECT_THAT(
      [] {
        run_kernel_one("MatMul", {floats({1, 2}, {1, 2}), floats({1, 2}, {1, 2})}, DType::float32, {1, 2});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("[1, 2] and [1, 2] cannot be multiplied")));
}

TEST(Gemm, ScalesTransposesAndAddsC) {
  RandomTensors random(10);
  const int64_t m = 9, n = 21, k = 33;
  const Tensor a = random.integer_floats({m, k}), b = random.integer_floats({k, n});
  const auto raw = product(a.as<float>().data(), b.as<float>().data(), m, n, k);
  for (bool trans_a : {false, true})
    for (bool trans_b : {false, true})
      for (float alpha : {1.0f, 0.5f})
        for (float beta : {1.0f, 2.0f})
          for (const Dims& c_dims : {Dims{}, Dims{1}, Dims{n}, Dims{1, n}, Dims{m, 1}, Dims{m, n}}) {
            const Tensor c = random.integer_floats(c_dims);
            std::vector<float> expected(m * n);
            for (int64_t i = 0; i < m * n; ++i) {
              const int64_t row = c_dims.size() == 2 && c_dims[0] == m ? i / n : 0;
              const int64_t column = !c_dims.empty() && c_dims.back() == n ? i % n : 0;
              const int64_t width = c_dims.empty() ? 1 : c_dims.back();
              expected[i] = alpha * raw[i] + beta * c.as<float>()[row * width + column];
            }
            const Attributes attributes{
                {"transA", int64_t{trans_a}}, {"transB", int64_t{trans_b}}, {"alpha", alpha}, {"beta", beta}};
            const std::vector<Tensor> inputs{trans_a ? transposed(a) : a, trans_b ? transposed(b) : b, c};
            EXPECT_EQ(
                values_of<float>(run_kernel_one("Gemm", inputs, DType::float32, {m, n}, {.attributes = attributes})),
                expected);
            if (auto packed = run_packed("Gemm", inputs, DType::float32, {m, n}, attributes)) {
              EXPECT_EQ(values_of<float>(*packed), expected);
            }
          }
}

TEST(Gemm, AddsABiasToSixteenBitProductsBeforeRounding) {
  RandomTensors random(11);
  const auto a = random.integers(6 * 40, 16), b = random.integers(40 * 8, 16), c = random.integers(8, 3);
  auto expected = product(a.data(), b.data(), 6, 8, 40);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += c[i % 8];
  for (DType dtype : {DType::bfloat16, DType::float16}) {
    const Tensor y = run_kernel_one(
        "Gemm", {narrowed(dtype, {6, 40}, a), narrowed(dtype, {40, 8}, b), narrowed(dtype, {8}, c)}, dtype, {6, 8});
    EXPECT_EQ(widened(y), widened(narrowed(dtype, {6, 8}, expected))) << name_of(dtype);
  }
}

TEST(Gemm, GivesCWhereTheSumIsEmpty) {
  const Tensor y =
      run_kernel_one("Gemm", {floats({2, 0}, {}), floats({0, 2}, {}), floats({2}, {3, 4})}, DType::float32, {2, 2});
  EXPECT_THAT(values_of<float>(y), ElementsAre(3, 4, 3, 4));
}

TEST(PackedLayout, LeavesOtherOperatorsAndTypesAlone) {
  Node node;
  node.op_type = "MatMul";
  EXPECT_FALSE(packed_layout(node, {DType::float64, {64, 64}}));
  EXPECT_FALSE(packed_layout(node, {DType::float32, {0, 64}}));
  node.op_type = "Add";
  EXPECT_FALSE(packed_layout(node, {DType::float32, {64, 64}}));
}

}  // namespace
}  // namespace tessera::kernels
