#include "tessera/plan/tensor_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::plan {
namespace {

using testing::ElementsAre;

WeightInfo weight(const std::string& name, std::vector<std::string> shape, int64_t bytes = 1) {
  WeightInfo made;
  made.tensor = {name, DType::float32, std::move(shape)};
  made.bytes = bytes;
  return made;
}

std::vector<std::string> patterns(const std::vector<WeightInfo>& weights, const Plan& fixed = {}) {
  std::vector<std::string> all;
  for (const TensorKind& kind : kinds_of(weights, fixed)) all.push_back(kind.pattern);
  return all;
}

TEST(KindsOf, are_parameters_that_differ_in_numbers) {
  const std::vector<WeightInfo> weights = {
      weight("embed", {"100", "8"}, 5),        weight("h.0.fc_1.weight", {"8", "8"}),
      weight("h.1.fc_1.weight", {"8", "8"}),   weight("h.0.fc_2.weight", {"8", "8"}),
      weight("h.1.fc_2.weight", {"8", "8"}),   weight("h.0.bias", {"8"}),
      weight("h.0.experts.0.w1", {"8", "8"}),  weight("h.1.experts.3.w1", {"8", "8"}),
      weight("block_0/up/kernel", {"8", "8"}), weight("block_1/up/kernel", {"8", "8"}),
  };
  EXPECT_THAT(patterns(weights),
              ElementsAre("embed", "h.*.fc_1.weight", "h.*.fc_2.weight", "h.*.experts.*.w1", "block_*/up/kernel"));
  Plan fixed;
  fixed.annotations = {{"h.*=[-,tp]"}};
  EXPECT_THAT(patterns(weights, fixed), ElementsAre("embed", "block_*/up/kernel"));
}

TEST(KindsOf, have_one_shape) {
  EXPECT_THAT(patterns({weight("h.0.w.x", {"8", "8"}), weight("h.1.w.x", {"8", "4"})}),
              ElementsAre("h.0.w.x", "h.1.w.x"));
  // `h.*.w` would match the others, too.
  EXPECT_THAT(patterns({weight("h.0.w", {"8", "8"}), weight("h.1.w", {"8", "8"}), weight("h.0.mlp.w", {"8", "8"})}),
              ElementsAre("h.0.w", "h.1.w", "h.0.mlp.w"));
  // A pattern that ends with `*` may match results.
  EXPECT_THAT(patterns({weight("val_1", {"8", "8"}), weight("val_2", {"8", "8"})}), ElementsAre("val_1", "val_2"));
}

TEST(KindsOf, have_the_names_of_the_exported_model) {
  std::vector<WeightInfo> weights = {weight("val_3", {"8", "16"}), weight("val_9", {"8", "16"}),
                                     weight("embed", {"100", "8"}), weight("val_12", {"8", "100"})};
  weights[0].sources = {"layers.0.up.weight"};
  weights[1].sources = {"layers.1.up.weight"};
  weights[3].sources = {"embed"};
  const std::vector<TensorKind> kinds = kinds_of(weights, {});
  ASSERT_EQ(kinds.size(), 3U);
  EXPECT_EQ(kinds.front().pattern, "layers.*.up.weight");
  EXPECT_THAT(kinds.front().names, ElementsAre("val_3", "val_9"));
  EXPECT_EQ(kinds.back().pattern, "val_12") << "a copy of another shape";
}

TEST(Entries, move_axes) {
  const Entries entries("[8{dp}, 12{tp:(1)2}·64]", 2);
  EXPECT_EQ(entries.dim_of("tp"), 1);
  EXPECT_EQ(entries.dim_of("cp"), -1);
  EXPECT_EQ(entries.moved("cp", 0).str(), "[{dp,cp},12{tp:(1)2}·64]");
  EXPECT_EQ(entries.moved("tp", 0).str(), "[{dp,tp},-]");
  EXPECT_EQ(entries.moved("dp", -1).str(), "[-,12{tp:(1)2}·64]");
  EXPECT_EQ(Entries("", 3).moved("tp", 2).str(), "[-,-,tp]");
  EXPECT_EQ(Entries("[?, 8{tp}?]", 2).moved("dp", 0).str(), "[dp,8{tp}?]");
}

}  // namespace
}  // namespace tessera::plan
