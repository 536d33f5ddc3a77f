// Types are inferred from symbols, so an operand may turn out to hold too little: it is refused before it is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using testing::HasSubstr;
using Results = std::vector<std::pair<DType, Dims>>;

std::string refusal(const std::string& type, const std::vector<Tensor>& operands, const Results& results,
                    Attributes attributes = {}) {
  try {
    run_kernel(type, operands, results, {.attributes = std::move(attributes)});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return error.what();
  }
  return "no refusal";
}

Tensor ones(Dims dims, DType dtype = DType::float32) {
  if (dtype == DType::float64) return Tensor::of(dtype, dims, std::vector<double>(count_of(dims), 1));
  return floats(dims, std::vector<float>(count_of(dims), 1));
}

Tensor int32s(Dims dims, const std::vector<int32_t>& values) {
  return Tensor::of(DType::int32, std::move(dims), values);
}

TEST(OperandExtents, of_recurrent_operators) {
  struct Case {
    size_t index;
    Tensor operand;
    const char* what;
  };
  const Results results{{DType::float32, {3, 1, 2, 2}}, {DType::float32, {1, 2, 2}}, {DType::float32, {1, 2, 2}}};
  for (const Case& wrong : {Case{3, ones({1, 15}), "the bias"}, Case{3, ones({2, 8}), "the bias"},
                            Case{4, int32s({1}, {3}), "sequence_lens"}, Case{4, ints({2}, {3, 3}), "sequence_lens"},
                            Case{5, ones({1, 1, 2}), "initial_h"}, Case{6, ones({1, 2, 1}), "initial_c"},
                            Case{7, ones({1, 5}), "the peepholes"}}) {
    std::vector<Tensor> operands{ones({3, 2, 1}), ones({1, 8, 1}), ones({1, 8, 2}), {}, {}, {}, {}, {}};
    EXPECT_EQ(refusal("LSTM", operands, results), "no refusal");
    operands[wrong.index] = wrong.operand;
    EXPECT_THAT(refusal("LSTM", operands, results), HasSubstr(wrong.what));
  }
}

TEST(OperandExtents, of_a_convolution_bias) {
  for (DType dtype : {DType::float32, DType::float64})
    for (const char* type : {"Conv", "ConvTranspose"})
      for (int64_t elements : {2, 3, 4}) {
        std::string said = refusal(type, {ones({1, 3, 4}, dtype), ones({3, 3, 1}, dtype), ones({elements}, dtype)},
                                   {{dtype, {1, 3, 4}}});
        EXPECT_THAT(said, HasSubstr(elements == 3 ? "no refusal" : "the bias has extents")) << type;
      }
}

TEST(OperandExtents, of_the_lengths_of_keys) {
  const Tensor x = ones({2, 1, 3, 4});
  for (const Tensor& lengths : {ints({1}, {3}), int32s({2}, {3, 3}), ints({2}, {3, 3})}) {
    std::string said = refusal("Attention", {x, x, x, {}, {}, {}, lengths}, {{DType::float32, {2, 1, 3, 4}}});
    const bool right = lengths.dtype == DType::int64 && lengths.count() == 2;
    EXPECT_THAT(said, HasSubstr(right ? "no refusal" : "nonpad_kv_seqlen"));
  }
}

TEST(OperandExtents, of_batches_of_indices) {
  const Tensor data = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const Attributes batched{{"batch_dims", int64_t{1}}};
  EXPECT_EQ(refusal("GatherND", {data, ints({3, 1}, {0, 1, 0})}, {{DType::float32, {3}}}, batched), "no refusal");
  EXPECT_THAT(refusal("GatherND", {data, ints({1, 1}, {0})}, {{DType::float32, {3}}}, batched),
              HasSubstr("batch dimension 0 has extent 3 in the data and 1 in the indices"));
}

TEST(OperandExtents, of_scalars) {
  const Tensor x = ones({2, 2}), none = floats({0}, {}), one = floats({1}, {1});
  const Results same{{DType::float32, {2, 2}}};
  EXPECT_EQ(refusal("Clip", {x, one, one}, same), "no refusal");
  EXPECT_THAT(refusal("Clip", {x, none}, same), HasSubstr("the lower bound is float32 [0]"));
  EXPECT_THAT(refusal("Clip", {x, {}, none}, same), HasSubstr("the upper bound"));
  EXPECT_THAT(refusal("Trilu", {x, ints({0}, {})}, same), HasSubstr("k is int64 [0]; give one int64 element"));
  EXPECT_THAT(refusal("Trilu", {x, int32s({}, {0})}, same), HasSubstr("k is int32"));
  EXPECT_THAT(refusal("Range", {none, one, one}, {{DType::float32, {3}}}), HasSubstr("the start"));
  EXPECT_THAT(refusal("Range", {one, one, none}, {{DType::float32, {3}}}), HasSubstr("the delta"));
  EXPECT_THAT(refusal("Pad", {x, ints({4}, {0, 0, 1, 1}), none}, {{DType::float32, {3, 3}}}),
              HasSubstr("the constant"));
  EXPECT_THAT(refusal("Dropout", {x, one, booleans({0}, {})}, same), HasSubstr("training_mode"));
}

}  // namespace
}  // namespace tessera::kernels
