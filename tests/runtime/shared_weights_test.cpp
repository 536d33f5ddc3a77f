#include "tessera/runtime/shared_weights.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tessera::runtime {
namespace {

const WeightForm kPlain{{.name = "w", .type = "float32 [4]"}, kPlainForm};

Tensor fours() {
  return Tensor::of<float>(DType::float32, {4}, {4, 4, 4, 4});
}

TEST(SharedWeights, gives_all_who_ask_what_the_first_has_made) {
  SharedWeights shared;
  std::atomic<int> made = 0;
  std::vector<Tensor> held(8);
  std::vector<std::thread> ranks;
  for (Tensor& tensor : held)
    ranks.emplace_back([&] {
      tensor = shared.get(kPlain, [&] {
        ++made;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the others ask meanwhile
        return fours();
      });
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(made, 1);
  for (const Tensor& tensor : held) EXPECT_EQ(tensor.data, held.front().data);
}

TEST(SharedWeights, keeps_nothing_that_nobody_holds) {
  SharedWeights shared;
  Tensor first = shared.get(kPlain, fours);
  const std::weak_ptr<const void> memory = first.owner;
  EXPECT_TRUE(shared.holds_any(kPlain.part));
  EXPECT_EQ(shared.find(kPlain).data, first.data);
  first = {};
  EXPECT_TRUE(memory.expired());
  EXPECT_FALSE(shared.holds_any(kPlain.part));
  EXPECT_EQ(shared.find(kPlain).owner, nullptr);
  EXPECT_EQ(shared.get(kPlain, fours).count(), 4) << "and makes it again";
}

TEST(SharedWeights, keeps_forms_and_parts_apart) {
  SharedWeights shared;
  WeightForm packed = kPlain, other = kPlain;
  packed.form = "packed";
  other.part.where = "[2] at [2] of [4]";
  const Tensor a = shared.get(kPlain, fours), b = shared.get(packed, fours);
  EXPECT_NE(a.data, b.data);
  EXPECT_FALSE(shared.holds_any(other.part));
  EXPECT_EQ(shared.find(other).owner, nullptr);
}

TEST(SharedWeights, lets_the_next_one_try_where_one_has_failed) {
  SharedWeights shared;
  EXPECT_THROW(shared.get(kPlain, []() -> Tensor { throw std::runtime_error("no room"); }), std::runtime_error);
  EXPECT_EQ(shared.get(kPlain, fours).count(), 4);
}

}  // namespace
}  // namespace tessera::runtime
