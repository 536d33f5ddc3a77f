#include "tessera/ir/on_demand.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera {
namespace {

/// Elements that are their own indices.
class Counting : public ElementMaker {
 public:
  void make(int64_t first, int64_t count, std::byte* to) const override {
    std::iota(reinterpret_cast<int64_t*>(to), reinterpret_cast<int64_t*>(to) + count, first);
  }
};

std::vector<int64_t> elements_of(const Tensor& tensor) {
  const Tensor made = made_whole(tensor);
  EXPECT_EQ(maker_of(made), nullptr);
  EXPECT_EQ(made.dims, tensor.dims);
  return made.to_int64();
}

TEST(OnDemand, parts_have_the_elements_of_the_whole) {
  const Tensor whole = on_demand(DType::int64, {2, 3, 4}, std::make_shared<Counting>());
  EXPECT_EQ(whole.data, nullptr);
  EXPECT_EQ(whole.bytes, 24 * sizeof(int64_t));
  std::vector<int64_t> all(24);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(elements_of(whole), all);
  EXPECT_EQ(elements_of(part_on_demand(whole, 0, 1, 1)), std::vector<int64_t>(all.begin() + 12, all.end()));
  EXPECT_EQ(elements_of(part_on_demand(whole, 1, 1, 2)),
            (std::vector<int64_t>{4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(elements_of(part_on_demand(whole, 2, 3, 1)), (std::vector<int64_t>{3, 7, 11, 15, 19, 23}));
  EXPECT_EQ(elements_of(part_on_demand(part_on_demand(whole, 1, 1, 2), 2, 0, 2)),
            (std::vector<int64_t>{4, 5, 8, 9, 16, 17, 20, 21}));
}

TEST(OnDemand, any_run_can_be_made_by_itself) {
  const Tensor part = part_on_demand(on_demand(DType::int64, {5, 7}, std::make_shared<Counting>()), 1, 2, 3);
  const std::vector<int64_t> whole = elements_of(part);
  for (int64_t first = 0; first < 15; ++first)
    for (int64_t count = 0; count <= 15 - first; ++count) {
      std::vector<int64_t> run(static_cast<size_t>(count));
      maker_of(part)->make(first, count, reinterpret_cast<std::byte*>(run.data()));
      EXPECT_TRUE(std::equal(run.begin(), run.end(), whole.begin() + first)) << first << " " << count;
    }
}

TEST(OnDemand, tensors_with_bytes_have_no_maker) {
  EXPECT_EQ(maker_of(Tensor::zeros(DType::float32, {3})), nullptr);
  EXPECT_EQ(maker_of(Tensor{}), nullptr);
}

/// Notes which elements were let go of.
class Noting : public Counting {
 public:
  void let_go(int64_t first, int64_t count) const override { gone = {first, count}; }
  mutable std::pair<int64_t, int64_t> gone;
};

TEST(OnDemand, parts_let_go_of_what_lies_behind_them) {
  const auto maker = std::make_shared<Noting>();
  const Tensor part = part_on_demand(on_demand(DType::int64, {2, 3, 4}, maker), 1, 1, 2);  // 4 to 11, 16 to 23
  maker_of(part)->let_go(2, 3);
  EXPECT_EQ(maker->gone, std::pair(int64_t{6}, int64_t{3}));
  maker_of(part)->let_go(0, 16);
  EXPECT_EQ(maker->gone, std::pair(int64_t{4}, int64_t{20}));
}

TEST(OnDemand, tensors_of_one_origin_are_known) {
  const Tensor whole = on_demand(DType::int64, {2, 3, 4}, std::make_shared<Counting>());
  const Tensor copy = whole, other = on_demand(DType::int64, {2, 3, 4}, std::make_shared<Counting>());
  EXPECT_EQ(origin_of(copy), origin_of(whole));
  EXPECT_NE(origin_of(other), origin_of(whole));
  EXPECT_EQ(bytes_behind(whole), nullptr);
  const Tensor made = made_whole(whole);
  EXPECT_EQ(origin_of(made), reinterpret_cast<uintptr_t>(made.data));
  EXPECT_EQ(bytes_behind(made), &made);
  EXPECT_EQ(origin_of(Tensor()), 0u);
}

// Whoever takes the same part of the same whole has the same, whenever that is.
TEST(OnDemand, parts_of_one_place_have_one_origin) {
  const Tensor whole = on_demand(DType::int64, {2, 3, 4}, std::make_shared<Counting>());
  const Tensor other = on_demand(DType::int64, {2, 3, 4}, std::make_shared<Counting>());
  const uint64_t origin = origin_of(part_on_demand(whole, 1, 1, 2));
  EXPECT_EQ(origin_of(part_on_demand(whole, 1, 1, 2)), origin);
  EXPECT_NE(origin_of(part_on_demand(whole, 1, 0, 2)), origin);
  EXPECT_NE(origin_of(part_on_demand(whole, 2, 1, 2)), origin);
  EXPECT_NE(origin_of(part_on_demand(other, 1, 1, 2)), origin);
  const auto nested = [&] { return origin_of(part_on_demand(part_on_demand(whole, 1, 1, 2), 2, 0, 2)); };
  EXPECT_EQ(nested(), nested());
}

/// Copies of elements that lie somewhere.
class Copying : public ElementMaker {
 public:
  explicit Copying(Tensor from) : from_(std::move(from)) {}
  void make(int64_t first, int64_t count, std::byte* to) const override {
    std::memcpy(to, from_.data + bytes_of(from_.dtype, first), bytes_of(from_.dtype, count));
  }
  void add_sources(int64_t first, int64_t count, std::vector<SourceRange>& sources) const override {
    add_sources_of(from_, first, count, sources);
  }

 private:
  Tensor from_;
};

TEST(OnDemand, sources_of_parts_are_ranges_of_the_whole) {
  const Tensor from = Tensor::zeros(DType::int64, {2, 3, 4});
  const Tensor whole = on_demand(DType::int64, {2, 3, 4}, std::make_shared<Copying>(from));
  std::vector<SourceRange> sources;
  add_sources_of(part_on_demand(whole, 1, 1, 2), 2, 3, sources);
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0].source->data, from.data);
  EXPECT_EQ(sources[0].begin, 6);
  EXPECT_EQ(sources[0].end, 9);
  sources.clear();
  add_sources_of(on_demand(DType::int64, {3}, std::make_shared<Counting>()), 0, 3, sources);
  EXPECT_TRUE(sources.empty());
}

}  // namespace
}  // namespace tessera
