// Parts of an Attention, each with a place of its own, against the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/random_tensors.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// Elements [begin, end) of one dimension.
Tensor part_of(const Tensor& x, size_t dim, int64_t begin, int64_t end) {
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < dim; ++d) outer *= x.dims[d];
  for (size_t d = dim + 1; d < x.dims.size(); ++d) inner *= x.dims[d];
  std::vector<float> values;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = begin * inner; i < end * inner; ++i) values.push_back(x.as<float>()[o * x.dims[dim] * inner + i]);
  Dims dims = x.dims;
  dims[dim] = end - begin;
  return floats(dims, values);
}

Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const Attributes& attributes) {
  Dims dims = q.dims;
  dims.back() = v.dims.back();
  return run_kernel_one("Attention", {q, k, v}, DType::float32, dims, {.attributes = attributes});
}

// `place` as in ops/attention.h. With `parts`, the rows' largest scores and sums are results 1 and 2.
std::vector<Tensor> shard_of(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<int64_t>& place,
                             const Attributes& attributes, bool parts = false) {
  Dims dims = q.dims, rows = q.dims;
  dims.back() = v.dims.back();
  rows.back() = 1;
  std::vector<std::pair<DType, Dims>> results = {{DType::float32, dims}};
  if (parts)
    results.insert(results.end(),
                   {{DType::undefined, {}}, {DType::undefined, {}}, {DType::float32, rows}, {DType::float32, rows}});
  const Tensor none{};
  auto made = run_kernel("AttentionShard", {q, k, v, none, none, none, none, ints({5}, place)}, results,
                         {.attributes = attributes, .domain = "tessera", .threads = 2});
  if (parts) made.erase(made.begin() + 1, made.begin() + 3);
  return made;
}

struct ShardOperands {
  Tensor q, k, v;
};
ShardOperands shard_operands(int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys) {
  RandomTensors random(50);
  return {random.normal_floats({2, heads, queries, 8}), random.normal_floats({2, kv_heads, keys, 8}),
          random.normal_floats({2, kv_heads, keys, 5})};
}

const std::vector<Attributes>& positions() {
  static const std::vector<Attributes> all = {
      {{"is_causal", int64_t{1}}},
      {{"left_window_size", int64_t{20}}, {"right_window_size", int64_t{3}}},
      {{"is_causal", int64_t{1}}, {"left_window_size", int64_t{2}}, {"softcap", 2.0f}}};
  return all;
}

TEST(AttentionShard, OfSomeQueriesGivesTheirRows) {
  const auto [q, k, v] = shard_operands(4, 2, 150, 150);
  for (const Attributes& attributes : positions()) {
    const Tensor all = attention_of(q, k, v, attributes);
    for (const auto& [begin, end] : {std::pair(0, 7), {7, 100}, {100, 150}, {150, 150}})
      EXPECT_THAT(values_of<float>(shard_of(part_of(q, 2, begin, end), k, v, {begin, 150, 0, 0, 2}, attributes)[0]),
                  Pointwise(FloatNear(2e-6f), values_of<float>(part_of(all, 2, begin, end))));
  }
}

TEST(AttentionShard, OfSomeHeadsFindsTheirKeys) {
  const auto [q, k, v] = shard_operands(8, 2, 5, 9);
  const Tensor all = attention_of(q, k, v, {});
  for (const auto& [begin, end] : {std::pair(0, 3), {3, 6}, {6, 8}, {0, 8}, {8, 8}})
    EXPECT_THAT(values_of<float>(shard_of(part_of(q, 1, begin, end), k, v, {0, 5, 0, begin, 4}, {})[0]),
                Pointwise(FloatNear(2e-6f), values_of<float>(part_of(all, 1, begin, end))));
}

TEST(AttentionShard, PartsOfTheKeysMakeTheWhole) {
  const auto [q, k, v] = shard_operands(4, 2, 70, 130);
  std::vector<Attributes> all = positions();
  all.push_back({{"scale", 0.3f}});
  for (const Attributes& attributes : all) {
    const auto expected = values_of<float>(attention_of(q, k, v, attributes));
    std::vector<std::vector<Tensor>> parts;
    for (const auto& [begin, end] : {std::pair(0, 1), {1, 66}, {66, 130}, {130, 130}})
      parts.push_back(
          shard_of(q, part_of(k, 2, begin, end), part_of(v, 2, begin, end), {0, 70, begin, 0, 2}, attributes, true));
    const auto width = static_cast<size_t>(v.dims.back());
    std::vector<float> joined(expected.size());
    for (size_t row = 0; row < expected.size() / width; ++row) {
      double most = -infinity, sum = 0;
      for (const auto& part : parts) most = std::max<double>(most, part[1].as<float>()[row]);
      const auto weight = [&](const std::vector<Tensor>& part) {
        return part[2].as<float>()[row] == 0 ? 0 : part[2].as<float>()[row] * std::exp(part[1].as<float>()[row] - most);
      };
      for (const auto& part : parts) sum += weight(part);
      for (const auto& part : parts)
        for (size_t d = 0; d < width; ++d)
          joined[row * width + d] += static_cast<float>(weight(part) / sum * part[0].as<float>()[row * width + d]);
    }
    EXPECT_THAT(joined, Pointwise(FloatNear(2e-6f), expected));
  }
}

TEST(AttentionShard, ThatSeesNoKeyHasNoWeight) {
  const auto [q, k, v] = shard_operands(2, 2, 3, 4);
  const auto part = shard_of(q, k, v, {0, 3, 3, 0, 1}, {{"is_causal", int64_t{1}}}, true);
  EXPECT_THAT(values_of<float>(part[0]), ::testing::Each(0));
  EXPECT_THAT(values_of<float>(part[1]), ::testing::Each(-infinity));
  EXPECT_THAT(values_of<float>(part[2]), ::testing::Each(0));
}

// Whatever tile a later key lies in, and whatever rows are computed beside it.
TEST(Attention, OfACausalQueryIsFiniteWhereLaterValuesAreNot) {
  auto [q, k, v] = shard_operands(2, 1, 80, 80);
  const Attributes causal = {{"is_causal", int64_t{1}}};
  const Tensor finite = attention_of(q, k, v, causal);
  auto values = values_of<float>(v);
  for (int64_t b = 0; b < 2; ++b) values[(b * 80 + 40) * 5] = infinity;
  const Tensor infinite = attention_of(q, k, floats(v.dims, values), causal);
  for (const Tensor* result : {&finite, &infinite}) EXPECT_EQ(result->dims, (Dims{2, 2, 80, 5}));
  EXPECT_EQ(values_of<float>(part_of(infinite, 2, 0, 40)), values_of<float>(part_of(finite, 2, 0, 40)));
  EXPECT_EQ(part_of(infinite, 2, 40, 80).as<float>()[0], infinity);
}

TEST(AttentionShard, RefusesPlacesThatDoNotFit) {
  const auto [q, k, v] = shard_operands(4, 2, 3, 4);
  const auto error = [&](const std::vector<int64_t>& place) -> std::string {
    try {
      shard_of(q, k, v, place, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error({1, 3, 0, 0, 2}), HasSubstr("its 3 queries begin at 1 of 3"));
  EXPECT_THAT(error({0, 3, 0, 1, 2}), HasSubstr("2 key heads in groups of 2 have 4"));
  EXPECT_THAT(error({0, 3, -1, 0, 2}), HasSubstr("five numbers from 0"));
  EXPECT_EQ(error({0, 3, 0, 0, 2}), "");
}

}  // namespace
}  // namespace tessera::kernels
