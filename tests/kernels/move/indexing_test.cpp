#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> run_indexing(const std::string& op, const std::vector<Tensor>& inputs, Dims dims,
                                const Attributes& attributes = {}) {
  return values_of<float>(run_kernel_one(op, inputs, DType::float32, std::move(dims), {.attributes = attributes}));
}

Attributes axis(int64_t value) {
  return {{"axis", value}};
}

/// The message of the user error that `body` throws.
template <typename Body>
std::string user_error(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

const Tensor table = floats({3, 2}, {1, 2, 3, 4, 5, 6});

TEST(Indexing, gather_takes_lines_along_an_axis) {
  EXPECT_THAT(run_indexing("Gather", {table, ints({2}, {2, 0})}, {2, 2}), ElementsAre(5, 6, 1, 2));
  EXPECT_THAT(run_indexing("Gather", {table, ints({}, {-1})}, {2}), ElementsAre(5, 6));
  EXPECT_THAT(run_indexing("Gather", {table, ints({1, 2}, {1, 1})}, {3, 1, 2}, axis(1)), ElementsAre(2, 2, 4, 4, 6, 6));
  const Tensor narrow = Tensor::of<int32_t>(DType::int32, {2}, {1, -3});
  EXPECT_THAT(run_indexing("Gather", {table, narrow}, {2, 2}), ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(run_indexing("Gather", {table, ints({0}, {})}, {0, 2}), ElementsAre());
}

// Two elements of 4 bits lie in a byte, and four of 2 bits.
TEST(Indexing, gather_takes_lines_of_narrow_elements) {
  Tensor codes = Tensor::zeros(DType::int4, {3, 4});
  for (int i = 0; i < 6; ++i) codes.mutable_data()[i] = std::byte(0x10 * (i + 1) + i);
  const Tensor lines = run_kernel_one("Gather", {codes, ints({2}, {2, 0})}, DType::int4, {2, 4});
  const auto* bytes = reinterpret_cast<const uint8_t*>(lines.data);
  EXPECT_THAT(std::vector<int>(bytes, bytes + 4), ElementsAre(0x54, 0x65, 0x10, 0x21));
  const Tensor odd = Tensor::zeros(DType::uint4, {2, 3});
  EXPECT_THAT(user_error([&] {
                run_kernel_one("Gather", {odd, ints({1}, {1})}, DType::uint4, {1, 3});
              }),
              HasSubstr("lines of 3 elements of 4 bits, which are not whole bytes"));
}

TEST(Indexing, slices_take_lines_of_narrow_elements) {
  Tensor codes = Tensor::zeros(DType::uint4, {3, 4});
  for (int i = 0; i < 6; ++i) codes.mutable_data()[i] = std::byte(0x10 * (i + 1) + i);
  const auto cut = [&](int64_t begin, int64_t end, int64_t step, int64_t axis, Dims dims) {
    const Tensor made =
        run_kernel_one("Slice", {codes, ints({1}, {begin}), ints({1}, {end}), ints({1}, {axis}), ints({1}, {step})},
                       DType::uint4, std::move(dims));
    const auto* bytes = reinterpret_cast<const uint8_t*>(made.data);
    return std::vector<int>(bytes, bytes + made.bytes);
  };
  EXPECT_THAT(cut(1, 3, 1, 0, {2, 4}), ElementsAre(0x32, 0x43, 0x54, 0x65));
  EXPECT_THAT(cut(0, 3, 2, 0, {2, 4}), ElementsAre(0x10, 0x21, 0x54, 0x65));
  EXPECT_THAT(cut(2, 4, 1, 1, {3, 2}), ElementsAre(0x21, 0x43, 0x65));
  EXPECT_THAT(user_error([&] { cut(1, 3, 1, 1, {3, 2}); }), HasSubstr("uint4"));
}

TEST(Indexing, an_index_out_of_range_is_named) {
  const std::string message = user_error([] { run_indexing("Gather", {table, ints({2}, {0, 3})}, {2, 2}); });
  EXPECT_THAT(message, HasSubstr("tested"));
  EXPECT_THAT(message, HasSubstr("index 3 is outside [-3, 3)"));
  user_error([] { run_indexing("GatherElements", {table, ints({1, 2}, {0, -4})}, {1, 2}); });
  user_error([] { run_indexing("GatherND", {table, ints({1, 2}, {0, 2})}, {1}); });
  user_error([] { run_indexing("ScatterND", {table, ints({1, 1}, {3}), floats({1, 2}, {0, 0})}, {3, 2}); });
  user_error([] { run_indexing("ScatterElements", {table, ints({1, 1}, {5}), floats({1, 1}, {0})}, {3, 2}); });
}

TEST(Indexing, shards_of_a_gather_add_up_to_the_whole) {
  const Tensor indices = ints({4}, {2, 0, 1, -1});  // of a table of three rows
  auto shard = [&](const Tensor& rows, int64_t offset) {
    const RunOptions options = {.domain = "tessera"};
    return values_of<float>(run_kernel_one("GatherShard", {rows, indices, ints({}, {offset}), ints({}, {3})},
                                           DType::float32, {4, 2}, options));
  };
  const float nan = std::nanf("");
  EXPECT_THAT(shard(floats({2, 2}, {1, 2, 3, 4}), 0), ElementsAre(0, 0, 1, 2, 3, 4, 0, 0));
  EXPECT_THAT(shard(floats({1, 2}, {5, 6}), 2), ElementsAre(5, 6, 0, 0, 0, 0, 5, 6));
  EXPECT_THAT(shard(floats({0, 2}, {}), 3), testing::Each(0.0f));
  EXPECT_THAT(shard(floats({1, 2}, {nan, nan}), 7), testing::Each(0.0f));
}

TEST(Indexing, a_shard_refuses_what_the_whole_table_lacks) {
  const std::string message = user_error([] {
    run_kernel_one("GatherShard", {floats({1, 2}, {1, 2}), ints({1}, {3}), ints({}, {0}), ints({}, {3})},
                   DType::float32, {1, 2}, {.domain = "tessera"});
  });
  EXPECT_THAT(message, HasSubstr("index 3 is outside [-3, 3)"));
}

TEST(Indexing, gather_shard_works_along_any_axis) {
  const RunOptions options = {.attributes = axis(1), .domain = "tessera"};
  const Tensor columns = floats({2, 2}, {1, 2, 3, 4});
  const Tensor y = run_kernel_one("GatherShard", {columns, ints({3}, {4, 5, 6}), ints({}, {5}), ints({}, {8})},
                                  DType::float32, {2, 3}, options);
  EXPECT_THAT(values_of<float>(y), ElementsAre(0, 1, 2, 0, 3, 4));
}

TEST(Indexing, elements_of_other_shards_are_zeros) {
  const RunOptions options = {.attributes = axis(1), .domain = "tessera"};
  const Tensor indices = ints({2, 3}, {4, -1, 0, 5, 6, -3});  // of eight columns
  auto shard = [&](const Tensor& columns, int64_t offset) {
    return values_of<float>(run_kernel_one("GatherElementsShard", {columns, indices, ints({}, {offset}), ints({}, {8})},
                                           DType::float32, {2, 3}, options));
  };
  EXPECT_THAT(shard(floats({2, 2}, {1, 2, 3, 4}), 4), ElementsAre(1, 0, 0, 4, 0, 4));
  EXPECT_THAT(shard(floats({2, 2}, {1, 2, 3, 4}), 6), ElementsAre(0, 2, 0, 0, 3, 0));
  EXPECT_THAT(shard(floats({2, 0}, {}), 8), testing::Each(0.0f));
  EXPECT_TRUE(std::signbit(shard(floats({2, 0}, {}), 8)[0])) << "0 + -0 is 0, -0 + -0 is -0";
}

TEST(Indexing, updates_for_other_shards_are_left_out) {
  const Tensor indices = ints({1, 3}, {4, -1, 0}), updates = floats({1, 3}, {10, 20, 30});
  auto shard = [&](const Tensor& columns, int64_t offset, int64_t columns_of_all = 8) {
    const RunOptions options = {.attributes = {{"axis", int64_t{1}}, {"reduction", std::string("add")}},
                                .domain = "tessera"};
    return values_of<float>(run_kernel_one("ScatterElementsShard",
                                           {columns, indices, updates, ints({}, {offset}), ints({}, {columns_of_all})},
                                           DType::float32, columns.dims, options));
  };
  EXPECT_THAT(shard(floats({1, 2}, {1, 2}), 4), ElementsAre(11, 2));
  EXPECT_THAT(shard(floats({1, 2}, {1, 2}), 6), ElementsAre(1, 22));
  EXPECT_THAT(shard(floats({1, 0}, {}), 8), testing::IsEmpty());
  EXPECT_THAT(user_error([&] { shard(floats({1, 2}, {1, 2}), 0, 3); }), HasSubstr("index 4 is outside [-3, 3)"));
}

TEST(Indexing, points_of_other_shards_are_left_out) {
  const Tensor points = ints({3, 2}, {0, 1, -1, -1, 2, 0}), updates = floats({3}, {10, 20, 30});
  auto shard = [&](int64_t row, int64_t column) {
    return values_of<float>(run_kernel_one(
        "ScatterNDShard", {floats({2, 1}, {1, 2}), points, updates, ints({2}, {row, column}), ints({2}, {4, 2})},
        DType::float32, {2, 1}, {.domain = "tessera"}));
  };
  EXPECT_THAT(shard(0, 1), ElementsAre(10, 2));
  EXPECT_THAT(shard(2, 0), ElementsAre(30, 2));
  EXPECT_THAT(shard(2, 1), ElementsAre(1, 20));
}

TEST(Indexing, points_of_other_shards_are_zeros) {
  const Tensor points = ints({4, 2}, {0, 1, -1, -1, 2, 0, 3, 1});  // of [4, 2]
  auto shard = [&](const Tensor& table, int64_t row, int64_t column, const Tensor& at) {
    return values_of<float>(run_kernel_one("GatherNDShard", {table, at, ints({2}, {row, column}), ints({2}, {4, 2})},
                                           DType::float32, {at.dims[0]}, {.domain = "tessera"}));
  };
  const Tensor two = floats({2, 1}, {1, 2});
  EXPECT_THAT(shard(two, 0, 1, points), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(shard(two, 2, 0, points), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(shard(two, 2, 1, points), ElementsAre(0, 2, 0, 2));
  EXPECT_TRUE(std::signbit(shard(two, 2, 1, points)[0])) << "0 + -0 is 0, -0 + -0 is -0";
  EXPECT_THAT(shard(floats({2, 0}, {}), 0, 2, points), testing::Each(0.0F));
  EXPECT_THAT(user_error([&] { shard(two, 0, 0, ints({1, 2}, {0, 2})); }), HasSubstr("index 2 is outside [-2, 2)"));
}

TEST(Indexing, gather_nd_takes_tuples) {
  EXPECT_THAT(run_indexing("GatherND", {table, ints({2, 2}, {0, 1, 2, -2})}, {2}), ElementsAre(2, 5));
  EXPECT_THAT(run_indexing("GatherND", {table, ints({2, 1}, {1, -1})}, {2, 2}), ElementsAre(3, 4, 5, 6));
  const Tensor batched = floats({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_THAT(run_indexing("GatherND", {batched, ints({2, 1}, {1, 0})}, {2, 2}, {{"batch_dims", int64_t{1}}}),
              ElementsAre(3, 4, 5, 6));
}

TEST(Indexing, gather_elements_takes_one_by_one) {
  EXPECT_THAT(run_indexing("GatherElements", {table, ints({2, 2}, {2, 0, -1, 1})}, {2, 2}), ElementsAre(5, 2, 5, 4));
  EXPECT_THAT(run_indexing("GatherElements", {table, ints({3, 1}, {1, 0, 1})}, {3, 1}, axis(1)), ElementsAre(2, 3, 6));
}

TEST(Indexing, scatter_nd_combines_in_order) {
  const Tensor x = floats({4}, {1, 2, 3, 4}), where = ints({3, 1}, {1, 3, 1}), updates = floats({3}, {10, 20, 30});
  auto with = [&](const std::string& reduction) {
    return run_indexing("ScatterND", {x, where, updates}, {4}, {{"reduction", reduction}});
  };
  EXPECT_THAT(with("none"), ElementsAre(1, 30, 3, 20));
  EXPECT_THAT(with("add"), ElementsAre(1, 42, 3, 24));
  EXPECT_THAT(with("mul"), ElementsAre(1, 600, 3, 80));
  EXPECT_THAT(with("max"), ElementsAre(1, 30, 3, 20));
  EXPECT_THAT(with("min"), ElementsAre(1, 2, 3, 4));
  EXPECT_THROW(with("mean"), Error);
  EXPECT_THAT(run_indexing("ScatterND", {table, ints({1, 1}, {-1}), floats({1, 2}, {8, 9})}, {3, 2}),
              ElementsAre(1, 2, 3, 4, 8, 9));
}

TEST(Indexing, scatter_elements_may_take_over_its_data) {
  const std::vector<Tensor> in = {table, ints({2, 2}, {2, 0, 2, -1}), floats({2, 2}, {10, 20, 30, 40})};
  EXPECT_THAT(run_indexing("ScatterElements", in, {3, 2}), ElementsAre(1, 20, 3, 4, 30, 40));
  const RunOptions options = {.attributes = {{"reduction", std::string("add")}}, .in_place = 0};
  EXPECT_THAT(values_of<float>(run_kernel_one("ScatterElements", in, DType::float32, {3, 2}, options)),
              ElementsAre(1, 22, 3, 4, 45, 46));
  EXPECT_THAT(
      run_indexing("ScatterElements", {table, ints({3, 1}, {1, 0, 1}), floats({3, 1}, {7, 8, 9})}, {3, 2}, axis(1)),
      ElementsAre(1, 7, 8, 4, 5, 9));
}

TEST(Indexing, scattered_integers_wrap_around) {
  const Tensor x = Tensor::of<int32_t>(DType::int32, {1}, {INT32_MAX}),
               one = Tensor::of<int32_t>(DType::int32, {1}, {1});
  const RunOptions options = {.attributes = {{"reduction", std::string("add")}}};
  const Tensor y = run_kernel_one("ScatterElements", {x, ints({1}, {0}), one}, DType::int32, {1}, options);
  EXPECT_THAT(values_of<int32_t>(y), ElementsAre(INT32_MIN));
}

TEST(Indexing, one_hot_marks_valid_indices_only) {
  const Tensor depth = ints({}, {3}), values = floats({2}, {5, 9});
  EXPECT_THAT(run_indexing("OneHot", {ints({3}, {1, -1, 3}), depth, values}, {3, 3}),
              ElementsAre(5, 9, 5, 5, 5, 9, 5, 5, 5));
  EXPECT_THAT(run_indexing("OneHot", {ints({2}, {0, 2}), depth, values}, {3, 2}, axis(0)),
              ElementsAre(9, 5, 5, 5, 5, 9));
  EXPECT_THAT(run_indexing("OneHot", {floats({1}, {2}), depth, values}, {1, 3}), ElementsAre(5, 5, 9));
}

TEST(Indexing, top_k_orders_values_and_prefers_the_lower_index) {
  const Tensor x = floats({2, 4}, {1, 3, 3, 2, 7, 5, 6, 5});
  auto top = [&](const Tensor& from, Dims dims, const Attributes& attributes) {
    return run_kernel("TopK", {from, ints({1}, {2})}, {{DType::float32, dims}, {DType::int64, dims}},
                      {.attributes = attributes});
  };
  const std::vector<Tensor> most = top(x, {2, 2}, {});
  EXPECT_THAT(values_of<float>(most[0]), ElementsAre(3, 3, 7, 6));
  EXPECT_THAT(values_of<int64_t>(most[1]), ElementsAre(1, 2, 0, 2));
  const std::vector<Tensor> least = top(x, {2, 2}, {{"largest", int64_t{0}}});
  EXPECT_THAT(values_of<int64_t>(least[1]), ElementsAre(0, 3, 1, 3));
  const std::vector<Tensor> rows = top(table, {2, 2}, axis(0));
  EXPECT_THAT(values_of<float>(rows[0]), ElementsAre(5, 6, 3, 4));
  const std::vector<Tensor> odd = top(floats({3}, {1, std::nanf(""), 2}), {2}, {});
  EXPECT_THAT(values_of<int64_t>(odd[1]), ElementsAre(1, 2));
}

TEST(Indexing, top_k_of_many_lines_is_shared_among_threads) {
  constexpr int64_t lines = 600, n = 64;
  std::vector<float> x(lines * n);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7919) % 10007);
  const std::vector<std::pair<DType, Dims>> outputs = {{DType::float32, {lines, 5}}, {DType::int64, {lines, 5}}};
  const std::vector<Tensor> y = run_kernel("TopK", {floats({lines, n}, x), ints({1}, {5})}, outputs, {.threads = 3});
  for (int64_t line = 0; line < lines; ++line) {
    std::vector<float> sorted(x.begin() + line * n, x.begin() + (line + 1) * n);
    std::sort(sorted.rbegin(), sorted.rend());
    for (int64_t k = 0; k < 5; ++k) {
      ASSERT_EQ(y[0].as<float>()[line * 5 + k], sorted[k]);
      ASSERT_EQ(x[line * n + y[1].as<int64_t>()[line * 5 + k]], sorted[k]);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
